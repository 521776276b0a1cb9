"""Timing of free-form candidates.

A candidate returns tensors of its own, which the runner copies into the shared outputs inside the timed region, so that
whatever was to be computed is there when the clock stops. The reference does the same work here: its outputs are copied
into memory of their own, as many sets of them. What such a copy costs is then measured in this process, where no
candidate can slow it down, and taken off both sides.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from ..profiling import BLOCK_SECONDS, Profiler
from ..timing import PlanSubject, TorchSubject
from .outputs import tensors_in

#: Never more than this share of what was measured is taken off.
MOST_TAKEN_OFF = 0.8
BLOCKS = 7


class FreeformProfiler(Profiler):
    """Baselines copy as candidates do."""

    _ring: list[list[torch.Tensor]] | None = None
    _copy_seconds = 0.0

    def _subject(self, which: str) -> Any:
        calls = [self.task.unflatten(row) for row in self.sets.inputs]
        subject = CopyingSubject(which, self._callables[which], calls, self.target, self._private())
        return CopyTakenOff(subject, self._copy_seconds)

    def _quick(self, subject: PlanSubject, after: Callable[[], None]) -> dict[str, Any]:
        self._private()
        return super()._quick(CandidateByClock(subject, self._copy_seconds), after)  # type: ignore[arg-type]

    def _full(self, subject: PlanSubject, after: Callable[[], None]) -> dict[str, Any]:
        self._private()
        return super()._full(CandidateByClock(subject, self._copy_seconds), after)  # type: ignore[arg-type]

    def close(self) -> None:
        self._ring = None
        super().close()

    def _private(self) -> list[list[torch.Tensor]]:
        """As many outputs as the sets have, in memory that no runner sees; the cost of a copy is measured with them."""
        if self._ring is None:
            self._ring = [[torch.empty_like(place).zero_() for place in row] for row in self.sets.outputs]
            with self.lock.exclusive():
                self._copy_seconds = self._time_copies(self._ring)
        return self._ring

    def _time_copies(self, ring: list[list[torch.Tensor]]) -> float:
        """Seconds to copy the outputs of one call out of one warm place into the ring: the shortest, because a busy
        machine only makes them longer."""
        source = [place.clone() for place in ring[0]]
        count = len(ring)
        times = []
        for _ in range(BLOCKS):
            began, done = time.perf_counter(), 0
            while done < count and (done == 0 or time.perf_counter() - began < BLOCK_SECONDS[self.target]):
                for place, value in zip(ring[done], source, strict=True):
                    place.copy_(value)
                done += 1
            if self.target == "cuda":
                torch.cuda.synchronize()
            times.append((time.perf_counter() - began) / done)
        return min(times)


class CopyingSubject(TorchSubject):
    """A callable in the judge's process whose outputs are copied, as a candidate's are."""

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
            found = (result,) if isinstance(result, torch.Tensor) else tensors_in(result)
            for place, value in zip(ring[index], found, strict=True):
                place.copy_(value)
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began


class CopyTakenOff:
    """A subject whose time is told without the copies of its outputs."""

    def __init__(self, subject: Any, copy_seconds: float) -> None:
        self._subject: Any = subject
        self._copy_seconds = copy_seconds
        self.name = subject.name

    def run(self, first: int, count: int) -> float:
        return self._without_copies(float(self._subject.run(first, count)), count)

    def _without_copies(self, seconds: float, count: int) -> float:
        return seconds - min(count * self._copy_seconds, MOST_TAKEN_OFF * seconds)

    def wake(self) -> None:
        self._subject.wake()

    @property
    def ran(self) -> list[tuple[int, int]]:
        """Blocks of a candidate, the subject's own list."""
        held: list[tuple[int, int]] = self._subject.ran
        return held

    def release(self) -> None:
        self._subject.release()


class CandidateByClock(CopyTakenOff):
    """A candidate by the judge's clock alone: the device's events would be recorded by its own process."""

    def run(self, first: int, count: int) -> float:
        own, _ = self.both(first, count)
        self.ran.append((first, count))
        return self._without_copies(own, count)

    def both(self, first: int, count: int) -> tuple[float, float]:
        """Seconds by the clock, and 0 for what events say, whatever the process claims."""
        return float(self._subject.both(first, count)[0]), 0.0
