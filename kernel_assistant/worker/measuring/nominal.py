"""Reports invented times, the same for each call on any machine: for tests of everything in a verdict except measured
time.

Candidates run as often, on the same values and with the same checks as on the judge's own clock. Only code that opens
an environment can request this clock, so no time that a user sees is nominal."""

from __future__ import annotations

from dataclasses import dataclass

from .timing import TimedSubject

#: Seconds a call by the name of the subject: ten calls of a candidate fill a block on the CPU, and it is measurably
#: faster than each baseline.
CALL_SECONDS = {"candidate": 5e-4, "compile": 7.5e-4, "eager": 1e-3}


@dataclass
class NominalSubject:
    """Runs `subject`, a candidate or a baseline, and reports the invented time of CALL_SECONDS for each call."""

    subject: TimedSubject

    def __post_init__(self) -> None:
        self.name = self.subject.name

    def run(self, first: int, count: int) -> float:
        """Runs `count` calls, beginning on set number `first`. Returns their invented seconds instead of the measured
        ones."""
        self.subject.run(first, count)
        return count * CALL_SECONDS[self.name]

    def wake(self) -> bool:
        return self.subject.wake()
