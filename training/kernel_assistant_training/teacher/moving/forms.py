"""What the forms for other layouts share: a result with its loops, and the kernel that writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernel_assistant_training.teacher.moving.frame import LETTERS, Loops, launched
from kernel_assistant_training.teacher.text.answer import Pieces, kernel
from kernel_assistant_training.teacher.text.named import Named
from kernel_assistant_training.teacher.text.terms import Apply, Name, Term, below

_POSITION = re.compile(rf"\b[{LETTERS}]\b")


@dataclass(frozen=True)
class KernelResult:
    """Result number `number` of a task, which one kernel writes. `term` is its element at a position of `loops`."""

    named: Named
    number: int
    dtype: str
    loops: Loops
    term: Term

    @property
    def out(self) -> str:
        return f"{self.named.prefix}out{self.number}"

    @property
    def cuda(self) -> bool:
        return self.named.target == "cuda"


def written(job: KernelResult, sets: str, geometry: str, include: str, body: list[str], rows: str = "") -> Pieces:
    name = f"k{job.number}"
    text = "\n".join(body)
    arguments = launched(
        job.named, text, [f"out{job.number}", *([f"rows={rows}"] if f"{job.named.prefix}rows" in text else [])]
    )
    launch = f"{name}({', '.join(arguments)}){' ' + geometry if job.cuda else ''}"
    code = kernel(job.named.target, name, body)
    return Pieces(tuple(sets.split()) if job.cuda else (), (), (launch,), (include,), code)


def has_choice(term: Term) -> bool:
    """Whether the term depends on its position in the result, or has a part that may only be computed under a
    condition."""
    return any(
        one.guarded if isinstance(one, Apply) else isinstance(one, Name) and _POSITION.search(one.text) is not None
        for one in below(term)
    )
