"""Estimates the gain of a whole scanned program from kernels for its classes. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernel_assistant.errors import UsageError
from kernel_assistant.records import OptimizeResult
from kernel_assistant.records.scan import Scan, ScannedClass
from kernel_assistant.session.scanning.ranking import amdahl


@dataclass(frozen=True)
class ClassGain:
    """The result of one class's job; without a result, `failure` says why."""

    row: ScannedClass
    job: str
    result: OptimizeResult | None = None
    failure: str = ""

    @property
    def saved_seconds(self) -> float:
        """Seconds saved in one run of the program: the class's own time, less that time with kernels. Calls that the
        kernels do not serve save nothing; 0 if there are no kernels to apply."""
        best = self.result.best if self.result is not None and self.result.applicable else None
        if best is None:
            return 0.0
        served = max(self.row.share_seconds - sum(self.row.unserved_seconds.values()), 0.0)
        return served * max(1.0 - 1.0 / best.speedup_vs_eager, 0.0)


def worth_most(scan: Scan, count: int) -> tuple[ScannedClass, ...]:
    """Returns the `count` classes with recorded inputs whose kernels could save most time. Raises UsageError if there
    is none."""
    rows = [row for row in scan.classes if row.folder and not row.problem and row.saved_seconds > 0]
    if not rows:
        raise UsageError(
            f"scan {scan.id} has no class that kernels could be written for",
            "scan a longer run: kernel-assistant scan -- COMMAND",
        )
    return tuple(rows[:count])


def program_speedup(scan: Scan, gains: Iterable[ClassGain]) -> float:
    """Returns the speed-up of the scanned run with all these kernels applied, computed from the scan's times."""
    return amdahl(scan.counted_seconds, sum(gain.saved_seconds for gain in gains))
