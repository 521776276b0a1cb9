"""Estimates how much faster a whole scanned program becomes with kernels for its classes. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernel_assistant.errors import KernelAssistantError, UsageError
from kernel_assistant.records import OptimizeResult
from kernel_assistant.records.scan import Scan, ScannedClass, ScannedConfiguration
from kernel_assistant.session.scanning.ranking import amdahl


@dataclass(frozen=True)
class ConfigurationGain:
    """The result of the job of one configuration, `CLASS#number`; without a result, `failure` says why. `all_sizes` is
    True if the kernels are correct at all sizes, False if only at the sizes of the configuration's first sample."""

    number: int
    configuration: ScannedConfiguration
    job: str
    result: OptimizeResult | None = None
    failure: KernelAssistantError | None = None
    all_sizes: bool = True

    @property
    def applicable(self) -> bool:
        return self.result is not None and self.result.applicable and self.result.best is not None

    @property
    def served_calls(self) -> int:
        """The number of calls in the whole program whose sizes the kernels can serve; 0 if there are no kernels to
        apply."""
        if not self.applicable:
            return 0
        one = self.configuration
        return one.calls if self.all_sizes or not one.samples else one.samples[0].calls

    @property
    def saved(self) -> float:
        """The share of the configuration's time that its kernels save, from 0 to 1; 0 if there are no kernels to
        apply."""
        best = self.result.best if self.result is not None and self.applicable else None
        return 0.0 if best is None else max(1.0 - 1.0 / best.speedup_vs_eager, 0.0)


@dataclass(frozen=True)
class ClassGain:
    """The results of the jobs of one class, one for each configuration."""

    row: ScannedClass
    parts: tuple[ConfigurationGain, ...]

    @property
    def saved_seconds(self) -> float:
        """The seconds of the class's own time that the kernels save, in the part of a run that `Scan.counted_seconds`
        measures. Calls that the kernels do not serve save nothing."""
        served = max(self.row.share_seconds - sum(self.row.unserved_seconds.values()), 0.0)
        kept = sum(part.configuration.seconds for part in self.parts)
        whole = max(self.row.inclusive_seconds, kept)
        return served * sum(part.configuration.seconds * part.saved for part in self.parts) / whole if whole else 0.0

    @property
    def served_calls(self) -> int:
        """The number of calls in the whole program that the kernels may serve. Some of them still run the original, for
        example those with a gradient or autocast."""
        return sum(part.served_calls for part in self.parts)


def worth_most(scan: Scan, count: int) -> tuple[ScannedClass, ...]:
    """Returns at most `count` classes with recorded inputs, those in which kernels could save most time. Raises
    UsageError if there is no such class."""
    rows = [row for row in scan.classes if row.folder and not row.problem and row.saved_seconds > 0]
    if not rows:
        raise UsageError(
            f"scan {scan.id} has no class that kernels could be written for",
            "scan a longer run: kernel-assistant scan -- COMMAND",
        )
    return tuple(rows[:count])


def program_speedup(scan: Scan, gains: Iterable[ClassGain]) -> float:
    """Estimates from the scan's times the speed-up of the scanned run with all these kernels applied; start-up and
    warm-up are left out."""
    return amdahl(scan.counted_seconds, sum(gain.saved_seconds for gain in gains))
