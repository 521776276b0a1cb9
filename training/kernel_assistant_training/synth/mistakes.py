"""Mistakes put into answers that nobody ran, in known shares: a narrow slice without them is so soon learned by heart
that later stages have nothing to learn from."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Self

from kernel_assistant.errors import UsageError
from kernel_assistant_training.episodes.faults import FAULTS


@dataclass(frozen=True)
class Mistakes:
    """How often an answer has a fault, by the fault's name: one at most. Others are as the teacher wrote them."""

    shares: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, text: str) -> Self:
        """From NAME=SHARE with commas between them. Raises UsageError."""
        known = {name for table in FAULTS.values() for name in table}
        found = []
        for word in text.split(",") if text else ():
            name, _, share = word.partition("=")
            if name not in known:
                raise UsageError(f"no fault is called {name!r}", f"faults: {', '.join(sorted(known))}")
            try:
                found.append((name, float(share)))
            except ValueError as error:
                raise UsageError(f"{word}: {share!r} is no share", f"write {name}=0.2") from error
        if sum(share for _, share in found) > 1 or any(share < 0 for _, share in found):
            raise UsageError(f"{text}: shares are 0 to 1, and not more than 1 together", "lower them")
        return cls(tuple(found))

    def put(self, source: str, random: Random) -> str:
        """The source, with a fault as often as asked for; unchanged where that fault has no place in it."""
        left = random.random()
        for name, share in self.shares:
            left -= share
            if left < 0:
                (edit,) = (table[name] for table in FAULTS.values() if name in table)
                return edit(source, random) or source
        return source
