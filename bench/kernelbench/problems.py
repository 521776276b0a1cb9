"""The files of a checkout of KernelBench, in a level and a precision."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

DTYPES = {"fp32": "", "bf16": "bfloat16", "fp16": "float16"}

# Appended to a problem's file: the same module and inputs in another dtype.
IN_ANOTHER_TYPE = """

_first_get_inputs = get_inputs


def get_inputs():
    return [x.to(torch.{dtype}) if torch.is_tensor(x) and x.is_floating_point() else x for x in _first_get_inputs()]


class ModelInAnotherType(Model):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.to(torch.{dtype})
"""


@dataclass(frozen=True)
class Problem:
    level: int
    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    def source(self, precision: str, folder: Path) -> str:
        """`FILE:CLASS` of the problem. In another precision than fp32 the file is written into `folder`."""
        if precision == "fp32":
            return f"{self.path}:Model"
        path = folder / precision / f"level{self.level}" / self.path.name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = self.path.read_text(encoding="utf-8") + IN_ANOTHER_TYPE.format(dtype=DTYPES[precision])
        path.write_text(text, encoding="utf-8")
        return f"{path}:ModelInAnotherType"


def chosen_problems(root: Path, levels: Sequence[int], text: str) -> list[Problem]:
    """Those that `text` names: numbers of the `levels`, such as `5,12,19-32`, or of other levels each, in their order,
    such as `2:57,59-100 3:48`. All of the `levels` if it is empty. Raises FileNotFoundError if a level has none."""
    if ":" not in text:
        return problems(root, levels, numbers_in(text))
    groups = [group.partition(":") for group in text.split()]
    return [one for level, _, numbers in groups for one in problems(root, [int(level)], numbers_in(numbers))]


def problems(root: Path, levels: Sequence[int], numbers: frozenset[int] = frozenset()) -> list[Problem]:
    """All problems of the levels, or those with these numbers. Raises FileNotFoundError if a level has none."""
    found = list[Problem]()
    for level in levels:
        folders = [root / "KernelBench" / f"level{level}", root / f"level{level}"]
        folder = next((path for path in folders if any(path.glob("*.py"))), None)
        if folder is None:
            raise FileNotFoundError(f"no problems of level {level} in {root}: give --root a checkout of KernelBench")
        files = sorted(folder.glob("*.py"), key=lambda path: number(path.stem))
        found += [Problem(level, path) for path in files if not numbers or number(path.stem) in numbers]
    return found


def drawn_evenly(chosen: Sequence[Problem], count: int, seed: int) -> list[Problem]:
    """As many problems by lot, one of each level in turn, so that any beginning of the list is even too."""
    lot = random.Random(seed)
    of_level = [[one for one in chosen if one.level == level] for level in sorted({one.level for one in chosen})]
    turns = zip_longest(*(lot.sample(some, len(some)) for some in of_level))
    return [one for one in chain.from_iterable(turns) if one is not None][:count]


def number(name: str) -> int:
    """The number with which a problem's name begins, else 0."""
    match = re.match(r"\d+", name)
    return int(match[0]) if match else 0


def numbers_in(text: str) -> frozenset[int]:
    """The numbers in `5,12,19-32`."""
    chosen: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        chosen |= set(range(int(first), int(last or first) + 1))
    return frozenset(chosen)


def executed(path: Path) -> dict[str, Any]:
    """Runs a problem's or an export's file and returns the names that it defines. Raises whatever the file raises."""
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    return names
