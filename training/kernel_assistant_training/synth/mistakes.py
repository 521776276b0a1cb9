"""Puts deliberate mistakes into answers, at given rates. Without them a small model learns a narrow part of the
synthesis by heart so soon that later stages have nothing to learn."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Self

from kernel_assistant.errors import UsageError
from kernel_assistant_training.lessons.faults import FAULTS


@dataclass(frozen=True)
class FaultRates:
    """The probability of each fault (kind of mistake), by the fault's name. An answer gets at most one fault; an answer
    without a fault is correct."""

    shares: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, text: str) -> Self:
        """Parses pairs NAME=SHARE, separated by commas. Raises UsageError for an unknown name or invalid shares."""
        known = {name for table in FAULTS.values() for name in table}
        shares = []
        for word in text.split(",") if text else ():
            name, _, share = word.partition("=")
            if name not in known:
                raise UsageError(f"no fault is called {name!r}", f"faults: {', '.join(sorted(known))}")
            try:
                shares.append((name, float(share)))
            except ValueError as error:
                raise UsageError(f"{word}: {share!r} is no share", f"write {name}=0.2") from error
        if sum(share for _, share in shares) > 1 or any(share < 0 for _, share in shares):
            raise UsageError(f"{text}: shares are 0 to 1, and not more than 1 together", "lower them")
        return cls(tuple(shares))

    def put(self, source: str, random: Random) -> str:
        """Returns the source with a random fault. The source is unchanged if no fault is chosen, or if the chosen fault
        does not apply."""
        left = random.random()
        for name, share in self.shares:
            left -= share
            if left < 0:
                (edit,) = (table[name] for table in FAULTS.values() if name in table)
                return edit(source, random) or source
        return source
