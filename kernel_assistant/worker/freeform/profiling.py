"""Timing of free-form candidates.

A candidate returns tensors of its own, which the runner copies into the shared outputs inside the timed region, so that
all outputs have been computed when the clock stops. For a fair comparison, the judge also copies the reference's
outputs, into as many separate tensors. It measures the time of such a copy in this process, where no candidate can slow
it down, and subtracts it from the times of both.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from ..measuring.baselines import Baselines
from ..measuring.profiling import Profiler
from ..measuring.task_sets import BLOCK_SECONDS
from ..measuring.timing import PlanSubject, TorchSubject
from .outputs import tensors_in

#: At most this share of a measured time is subtracted.
MOST_TAKEN_OFF = 0.8
BLOCKS = 7


class CopyingBaselines(Baselines):
    """Baselines that also copy the outputs of each timed call, as free-form candidates have to do."""

    _ring: list[list[torch.Tensor]] | None = None
    _copy_seconds = 0.0

    def subject(self, which: str) -> Any:
        calls, target = self.task_sets.calls(), self.task_sets.target
        subject = CopyingSubject(which, self._callables[which], calls, target, self._private())
        return CopySubtracted(subject, self._copy_seconds)

    def candidate(self, subject: PlanSubject) -> HostClockSubject:
        """Returns `subject`, a candidate that can be timed, wrapped so that only the host's clock times it and the time
        of its copies is subtracted, as for these baselines."""
        self._private()
        return HostClockSubject(subject, self._copy_seconds)

    def forget_copies(self) -> None:
        """Frees the tensors to which the baselines copy their outputs."""
        self._ring = None

    def _private(self) -> list[list[torch.Tensor]]:
        """Returns, for each set (one timed copy of the inputs and outputs), tensors to which the reference's outputs
        are copied, in memory that no runner can read. The first call allocates them and measures the time of a copy."""
        if self._ring is None:
            self._ring = [[torch.empty_like(output).zero_() for output in row] for row in self.task_sets.sets.outputs]
            with self.task_sets.lock.exclusive():
                self._copy_seconds = self._time_copies(self._ring)
        return self._ring

    def _time_copies(self, ring: list[list[torch.Tensor]]) -> float:
        """Returns the seconds that it takes to copy the outputs of one call from a cached source into the tensors of
        `ring` (a list for each set): the shortest of several measurements, because other work only adds time."""
        source = [destination.clone() for destination in ring[0]]
        count = len(ring)
        times = []
        for _ in range(BLOCKS):
            began, done = time.perf_counter(), 0
            while done < count and (done == 0 or time.perf_counter() - began < BLOCK_SECONDS[self.task_sets.target]):
                for destination, value in zip(ring[done], source, strict=True):
                    destination.copy_(value)
                done += 1
            if self.task_sets.target == "cuda":
                torch.cuda.synchronize()
            times.append((time.perf_counter() - began) / done)
        return min(times)


class FreeformProfiler(Profiler):
    """A profiler (it times candidates and baselines) whose baselines copy their outputs, as free-form candidates do."""

    candidate_on_host = True
    baselines_class = CopyingBaselines
    baselines: CopyingBaselines

    def close(self) -> None:
        self.baselines.forget_copies()
        super().close()

    def _beside_baselines(self, subject: PlanSubject) -> PlanSubject:
        return self.baselines.candidate(subject)  # type: ignore[return-value]


class CopyingSubject(TorchSubject):
    """A callable in the judge's process whose calls are timed together with a copy of their outputs to `ring`, as a
    candidate's are; `ring` has the destinations for each set of inputs."""

    def __init__(self, name: str, call: Any, calls: Any, target: str, ring: list[list[torch.Tensor]]) -> None:
        super().__init__(name, call, calls, target)
        self._ring = ring

    def run(self, first: int, count: int) -> float:
        call, calls, ring = self._call, self._calls, self._ring
        if self._cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        for index in [*range(first, min(first + count, len(calls))), *range(first + count - len(calls))]:
            args, kwargs = calls[index]
            result = call(*args, **kwargs)
            outputs = (result,) if isinstance(result, torch.Tensor) else tensors_in(result)
            for destination, value in zip(ring[index], outputs, strict=True):
                destination.copy_(value)
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began


class CopySubtracted:
    """Wraps a timed callable (`subject`) and subtracts from its times the time for copying its outputs, `copy_seconds`
    for each call."""

    late = False

    def __init__(self, subject: Any, copy_seconds: float) -> None:
        self._subject: Any = subject
        self._copy_seconds = copy_seconds
        self.name = subject.name

    def run(self, first: int, count: int) -> float:
        return self._without_copies(float(self._subject.run(first, count)), count)

    def _without_copies(self, seconds: float, count: int) -> float:
        return seconds - min(count * self._copy_seconds, MOST_TAKEN_OFF * seconds)

    def wake(self) -> bool:
        return bool(self._subject.wake())

    def rest(self) -> None:
        self._subject.rest()

    def release(self) -> None:
        self._subject.release()


class HostClockSubject(CopySubtracted):
    """Wraps a candidate and times it by the judge's clock only: device events would be recorded by the candidate's own
    process, which is not trusted.
    """

    def run(self, first: int, count: int) -> float:
        return self._without_copies(self.both(first, count)[0], count)

    def both(self, first: int, count: int) -> tuple[float, float]:
        """Returns the seconds of `count` calls that begin with set `first`, by the judge's clock and by device events.
        The second is always 0, because the candidate's process could report any time.
        """
        return float(self._subject.both(first, count)[0]), 0.0

    def capture(self, number: int, first: int, count: int) -> bool:
        """Returns False: the calls cannot be captured as a CUDA graph, because the candidate's own process would make
        the graph."""
        return False
