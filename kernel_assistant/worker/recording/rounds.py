"""Finds the loop of a program and the moment at which its second round begins.

A program's phases begin with its first call of a module and with the second outermost call of each class. Times are
counted for each phase, so that the warm-up before a loop's second round can be left out once the loop is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .classes import ObservedClass
from .clock import CallClock

#: Outermost calls of one class that make a loop.
LOOP = 3
#: Most phases that are told apart; further classes begin none.
MOST = 16


@dataclass(frozen=True)
class PhaseStart:
    """A moment by the CPU's clock, the recorder's own seconds until then, and an event on CUDA."""

    moment: float
    overhead: float
    event: Any


class Rounds:
    """`enter` goes before each outermost call, `leave` after each call."""

    def __init__(self, clock: CallClock) -> None:
        self.starts: list[PhaseStart] = []
        self._clock = clock
        self._last = 0.0
        self._overhead = 0.0

    def enter(self, cls: ObservedClass, moment: float, overhead: float, *, cuda: bool) -> int:
        """Count an outermost call that came at `moment`, and return its phase. `overhead` is the recorder's own time
        until then."""
        cls.outermost += 1
        if not self.starts or (cls.outermost == 2 and len(self.starts) < MOST):
            cls.looped_from = len(self.starts)
            self.starts.append(PhaseStart(moment, overhead, self._clock.mark(cuda)))
        return len(self.starts) - 1

    def leave(self, moment: float, overhead: float) -> None:
        self._last, self._overhead = moment, overhead

    def span(self, phase: int) -> float:
        """Seconds from the beginning of a phase to the end of the last call, less the recorder's own. On CUDA the last
        call ends when the device has finished it."""
        if phase >= len(self.starts):
            return 0.0
        start = self.starts[phase]
        seconds = max(self._last - start.moment, self._clock.since(start.event))
        return max(seconds - (self._overhead - start.overhead), 0.0)


def loop_of(classes: Iterable[ObservedClass]) -> ObservedClass | None:
    """The class whose outermost calls took most time, if they are enough for a loop; its `looped_from` is the phase
    that began with the second round."""
    longest = max(classes, key=lambda cls: cls.outermost_seconds, default=None)
    return longest if longest is not None and longest.outermost >= LOOP and longest.looped_from > 0 else None
