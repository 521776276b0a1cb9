"""Runs a scanned program alternately with and without its applied kernels, and compares the times."""

from __future__ import annotations

import signal
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path

from kernel_assistant.apply.applied import counting
from kernel_assistant.errors import Cancelled, UsageError
from kernel_assistant.records.scan import Recording, Scan
from kernel_assistant.session.reporting.call_counts import CallCounts, read_counts
from kernel_assistant.session.scanning.program import explain_nothing, time_program

#: The confidence that an interval should have, where there are enough runs.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """The median of some samples, and a confidence interval from `low` to `high` for the median of their
    distribution."""

    median: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class TimedRun:
    """One run of the program. `wall` is its whole time in seconds. `seconds` is the time of one iteration of the
    program's main loop, without warm-up; for a program without a loop, the time from its first call of a module to the
    end of its last one. `counts` says which calls the kernels served."""

    exit_code: int
    wall: float
    recording: Recording
    counts: tuple[CallCounts, ...]

    @property
    def seconds(self) -> float:
        return self.recording.counted_seconds / max(self.recording.rounds, 1)


@dataclass(frozen=True)
class ProgramTimes:
    """Runs without and with kernels. Runs with the same index are a pair: they ran directly after each other."""

    scan: Scan
    without: tuple[TimedRun, ...]
    with_kernels: tuple[TimedRun, ...]

    @property
    def speedup(self) -> Interval:
        """The speed-up that the kernels give to the calls of modules: the median over the pairs, with its interval."""
        return median_interval([one.seconds / two.seconds for one, two in self._pairs])

    @property
    def whole_speedup(self) -> Interval:
        """The speed-up of the whole program by the kernels, start-up and warm-up included."""
        return median_interval([one.wall / two.wall for one, two in self._pairs])

    @property
    def counts(self) -> tuple[CallCounts, ...]:
        """The calls that kernels served, and the fallbacks, in the last run with kernels: one entry for each class with
        applied kernels that the program used, summed over its processes. Raises IndexError if there is no run."""
        return self.with_kernels[-1].counts

    @property
    def difference(self) -> str:
        """The reason why the runs may not have done the same work; "" if there is no sign of that."""
        runs = (*self.without, *self.with_kernels)
        codes = sorted({run.exit_code for run in runs})
        if len(codes) > 1:
            return f"the program ended with different exit codes: {', '.join(map(str, codes))}"
        calls = sorted({run.recording.calls for run in runs})
        if len(calls) > 1 and not all(run.recording.rounds for run in runs):
            return f"the program called modules {calls[0]} to {calls[-1]} times"
        if len({(run.recording.loop, bool(run.recording.rounds)) for run in runs}) > 1:
            return "the class that took most time was not always the same"
        return ""

    @property
    def _pairs(self) -> list[tuple[TimedRun, TimedRun]]:
        return list(zip(self.without, self.with_kernels, strict=True))


def measure_program(scan: Scan, pairs: int, told: Callable[[int, TimedRun, TimedRun], None]) -> ProgramTimes:
    """Runs the program of a scan `pairs` times without and `pairs` times with kernels; the order within a pair
    alternates. After each pair, calls `told(number, without, with_kernels)`, where `number` counts from 1.

    Raises UsageError if the program calls no module, or no class with kernels; Cancelled if Ctrl-C ended it.
    """
    if not Path(scan.folder).is_dir():
        raise UsageError(f"the folder of scan {scan.id} is gone: {scan.folder}", "scan the program where it is now")
    without, with_kernels = [], []
    for number in range(pairs):
        order = (False, True) if number % 2 == 0 else (True, False)
        runs = {kernels: _run(scan, kernels=kernels) for kernels in order}
        if not number:
            _check(runs[False], runs[True])
        without.append(runs[False])
        with_kernels.append(runs[True])
        told(number + 1, runs[False], runs[True])
    return ProgramTimes(scan, tuple(without), tuple(with_kernels))


def median_interval(values: Sequence[float]) -> Interval:
    """Returns the median of `values` and its interval: the narrowest one from the k-th smallest to the k-th largest
    value that has at least the confidence CONFIDENCE; with too few values, the widest one.

    No distribution is assumed: each value is above the median with probability 1/2. The interval misses the median if
    fewer than k of the n values are on one side of the median; the probability of that is 2 Σ_{i<k} C(n, i) / 2ⁿ.
    """
    ordered, n = sorted(values), len(values)

    def confidence(k: int) -> float:
        return max(1.0 - 2.0 * sum(comb(n, i) for i in range(k)) / 2.0**n, 0.0)

    k = max((k for k in range(1, n // 2 + 1) if confidence(k) >= CONFIDENCE), default=1)
    return Interval(statistics.median(ordered), ordered[k - 1], ordered[n - k], confidence(k))


def _run(scan: Scan, *, kernels: bool) -> TimedRun:
    with tempfile.TemporaryDirectory(prefix="kernel-assistant-") as own:
        counters = Path(own, "counters")
        counters.mkdir()
        environment = {**counting(str(counters)), "KERNEL_ASSISTANT_KERNELS": "" if kernels else "off"}
        ran = time_program(scan.command, scan.folder, Path(own, "run"), environment)
        if ran.exit_code == 128 + signal.SIGINT:
            raise Cancelled("the program was interrupted, so nothing is compared", "kernel-assistant compare")
        if not ran.recordings or not ran.recordings[0][1].calls:
            raise explain_nothing(ran)
        return TimedRun(ran.exit_code, ran.seconds, ran.recordings[0][1], tuple(read_counts(counters)))


def _check(without: TimedRun, with_kernels: TimedRun) -> None:
    if not with_kernels.counts:
        raise UsageError(
            "the program called no class with applied kernels",
            "kernel-assistant apply JOB; for a class of a library, add the import line that apply names",
        )
    old = sorted({one.package.name for one in without.counts if one.kernel})
    if old:
        raise UsageError(f"{', '.join(old)} cannot be switched off: an older version wrote it", "apply the job again")
