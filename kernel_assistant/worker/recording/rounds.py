"""Finds the loop of a program (repeated calls of one module) and the moment at which its second round begins.

A phase, a section of the program's run, begins with the program's first call of a module, and with the second outermost
call (inside no other module's call) of each instance. Times are counted for each phase, so that the warm-up before a
loop's second round can be left out once the loop is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .clock import CallClock
from .constructors import ByIdentity

#: Outermost calls of one instance that make a loop.
LOOP = 3
#: Most phases that are told apart. The second call of a further instance counts for the last one.
MOST = 16


@dataclass
class OutermostCalls:
    """The calls of one module instance that are not inside another module's call. `looped_from` is the number of the
    phase that began with its second call, 0 if there was none; `second` and `last` are the times at which its second
    and its last call began, by the CPU's clock."""

    name: str
    calls: int = 0
    seconds: float = 0.0
    looped_from: int = 0
    second: float = 0.0
    last: float = 0.0


@dataclass(frozen=True)
class PhaseStart:
    """The beginning of a phase (a section of the program's run): its time by the CPU's clock, the seconds that the
    recorder itself had used until then, and a CUDA event (None on the CPU)."""

    moment: float
    overhead: float
    event: Any


class Rounds:
    """Divides a program's run into phases. `enter` is called before each outermost call, `leave` after each call."""

    def __init__(self, clock: CallClock) -> None:
        self.starts: list[PhaseStart] = []
        self._instances: list[OutermostCalls] = []
        self._known = ByIdentity()
        self._clock = clock
        self._last = 0.0
        self._overhead = 0.0

    @property
    def phase(self) -> int:
        return len(self.starts) - 1

    @property
    def loop(self) -> OutermostCalls | None:
        """The record of the instance whose outermost calls took most time; None if it was called too few times for a
        loop. None also for a program that loops over several models one after another, because the earlier loops would
        be left out as a warm-up."""
        longest = max(self._instances, key=lambda one: one.seconds, default=None)
        if longest is None or longest.calls < LOOP:
            return None
        over = (one for one in self._instances if one.calls >= LOOP and one.last < longest.second)
        return None if any(over) else longest

    def enter(self, module: Any, moment: float, overhead: float, *, cuda: bool) -> OutermostCalls:
        """Counts an outermost call of `module` that began at `moment` (seconds of the CPU's clock), and begins a new
        phase if the call does. Returns the record of the instance. `overhead` is the recorder's own time in seconds
        until then."""
        calls: OutermostCalls | None = self._known.get(module)
        if calls is None:
            calls = OutermostCalls(type(module).__name__)
            self._known.put(module, calls)
            self._instances.append(calls)
        calls.calls += 1
        calls.last = moment
        if not self.starts or (calls.calls == 2 and len(self.starts) < MOST):
            self.starts.append(PhaseStart(moment, overhead, self._clock.mark(cuda)))
        if calls.calls == 2:
            calls.looped_from, calls.second = self.phase, moment
        return calls

    def leave(self, moment: float, overhead: float) -> None:
        self._last, self._overhead = moment, overhead

    def span(self, phase: int) -> float:
        """Returns the seconds from the beginning of a phase to the end of the last call, minus the time that the
        recorder itself took. On CUDA the last call ends when the device has finished it."""
        if phase >= len(self.starts):
            return 0.0
        start = self.starts[phase]
        seconds = max(self._last - start.moment, self._clock.since(start.event))
        return max(seconds - (self._overhead - start.overhead), 0.0)
