"""Timing with the judge's own clock: alternating blocks over sets that the cache does not hold.

A block runs `count` calls, each on its own set, and ends with a device-wide wait. Blocks of the candidate and of a
baseline alternate (A B B A), the second block of each is half as long: a time that does not grow with the number of
calls is refused. Ratios are paired within a round, so that slow drift of the machine cancels.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from .device_lock import DeviceLock
from .pinning import pinned
from .runner_client import RunnerClient

#: OpenMP threads spin for up to 1.2 ms after a parallel region (GOMP_SPINCOUNT=10000; up to 9 ms by libgomp's default):
#: a block of the other process waits.
SPIN_SECONDS = 0.0015
LEAST_ROUNDS = 11
#: A pause of random length before each block, at most this long: whatever else uses the machine in a rhythm would else
#: fall into step with one of the two sides (a GPU that another process used by halves: the side that followed the
#: judge's own work was called slower in 7 of 50 comparisons of a kernel with itself).
PAUSE_SECONDS = 0.002
#: What a block costs at most beyond an empty message until the device works and after it has ended: 0.19 to 0.34 ms
#: (H200), which varies by 0.1 ms and would be 6% of a block.
SWITCH_SECONDS = 0.0005

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Subject(Protocol):
    """Something that can be timed on the sets."""

    name: str

    def run(self, first: int, count: int) -> float:
        """Wall seconds of `count` calls on sets first, first+1, … around the ring of sets; count ≤ number of sets."""

    def wake(self) -> None:
        """Take the switch of the device or processor to this side, with nothing of a candidate running: it could
        work ahead in a call that is not timed."""


class TorchSubject:
    """A callable in the judge's process. Outputs stay alive for a block, so that memory rotates as for a candidate."""

    def __init__(self, name: str, call: Callable[..., object], calls: list[Arguments], target: str) -> None:
        self.name, self._call, self._calls = name, call, calls
        self._cuda = target == "cuda"
        self._kept: list[object] = [None] * len(calls)
        if self._cuda:
            self._began, self._ended = (
                torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
                for _ in range(2)
            )

    def run(self, first: int, count: int) -> float:
        call, kept, calls = self._call, self._kept, self._calls
        if self._cuda:
            torch.cuda.synchronize()
            self._began.record()
        began = time.perf_counter()
        for index in [*range(first, min(first + count, len(calls))), *range(first + count - len(calls))]:
            kept[index] = None
            args, kwargs = calls[index]
            kept[index] = call(*args, **kwargs)
        if self._cuda:
            self._ended.record()
            torch.cuda.synchronize()
            return float(self._began.elapsed_time(self._ended)) * 1e-3
        return time.perf_counter() - began

    def wake(self) -> None:
        if self._cuda:
            torch.zeros(1, device="cuda")
            torch.cuda.synchronize()

    def release(self) -> None:
        self._kept = [None] * len(self._calls)


class PlanSubject:
    """A candidate in its runner. `ran` lists the blocks (first, count) since it was last cleared.

    On CUDA a block takes what the device's events say, as for a baseline: nothing of a candidate runs on the host side
    that records them. Yet it takes no less than the judge's clock allows. Where there are no events the clock decides.
    The message's own time, measured on empty blocks before the candidate was loaded, is taken off.
    """

    name = "candidate"

    def __init__(self, runner: RunnerClient, timeout: float) -> None:
        self._runner, self._timeout = runner, timeout
        self.ran: list[tuple[int, int]] = []

    def run(self, first: int, count: int) -> float:
        own, device = self.both(first, count)
        self.ran.append((first, count))
        return max(device, own - SWITCH_SECONDS) if device else own

    def both(self, first: int, count: int) -> tuple[float, float]:
        """Seconds by the judge's clock and by the device's events (0 without), of more than one lap if need be.

        On the CPU the candidate shares the process that answers, so that nothing it says of its time counts.
        """
        elapsed, answer = self._runner.timed_run(first, count, self._timeout)
        device = claimed(answer.get("device_ms")) * 1e-3 if self._runner.command.target == "cuda" else 0.0
        return max(elapsed - self._runner.empty_seconds, 1e-9), device

    def wake(self) -> None:
        self._runner.timed_run(0, 0, self._timeout)


def claimed(value: object) -> float:
    """A figure that a runner gives, which may say anything: finite, or 0."""
    try:
        figure = float(value) if isinstance(value, (int, float)) else 0.0
    except OverflowError:
        return 0.0
    return figure if math.isfinite(figure) else 0.0


@dataclass
class Round:
    """Seconds per call of each subject in one round."""

    per_call: dict[str, float] = field(default_factory=dict)


@dataclass
class Series:
    """All rounds. `growth` holds, for each round, seconds per call of the candidate's long and of its short block."""

    rounds: list[Round] = field(default_factory=list)
    growth: list[tuple[float, float]] = field(default_factory=list)
    calls: int = 0

    def add(self, spent: dict[str, list[tuple[float, int]]], candidate: str) -> None:
        """A round: the blocks (seconds, calls) of each subject."""
        entry = Round()
        for name, blocks in spent.items():
            entry.per_call[name] = sum(seconds for seconds, _ in blocks) / sum(count for _, count in blocks)
        (long, many), (short, few) = spent[candidate]
        if many >= 2 * few:
            self.growth.append((long / many, short / few))
        self.calls += many + few
        self.rounds.append(entry)

    def seconds(self, name: str) -> list[float]:
        return [entry.per_call[name] for entry in self.rounds if name in entry.per_call]

    def ratios(self, over: str, under: str) -> list[float]:
        """Paired ratios `over`/`under`: the speed-up of `under` when `over` is the baseline."""
        pairs = [entry.per_call for entry in self.rounds if over in entry.per_call and under in entry.per_call]
        return [pair[over] / pair[under] for pair in pairs]


@pinned()
def alternate(
    candidate: Subject,
    baseline: Subject,
    others: list[Subject],
    *,
    sets: int,
    rounds: int,
    most_seconds: float,
    block_seconds: float,
    gap_seconds: float,
    lock: DeviceLock,
    before_round: Callable[[int], None] = lambda first: None,
    before_candidate: Callable[[int, int], None] = lambda first, count: None,
    after_candidate: Callable[[int, int], None] = lambda first, count: None,
) -> Series:
    """Time `candidate` against `baseline` in A B B A rounds, and `others` once a round.

    Before each block the side is woken: that takes the switch of the device to the other process (0.4 ms on an H200).
    Blocks walk around the ring of sets, so that nobody finds what somebody else has
    just touched. `before_round(first)` changes the input values of all sets, beginning at `first` (so that those used
    next are out of the cache again), `before_candidate(first, count)` those that the candidate is about to see again;
    `after_candidate(first, count)` checks outputs of what was just timed. Each round has the device to itself. After
    `most_seconds`, waiting for it not counted, the series ends early, with at least eleven rounds.
    """
    with lock.exclusive():
        lengths = {
            subject.name: block_length(subject, sets, block_seconds) for subject in (candidate, baseline, *others)
        }
    ring = _Ring(sets, gap_seconds)
    series = Series()
    began = time.monotonic() - lock.waited
    for index in range(rounds):
        if index >= LEAST_ROUNDS and time.monotonic() - lock.waited - began > most_seconds:
            break
        before_round(ring.cursor)
        order = [baseline, candidate, candidate, baseline] if index % 2 else [candidate, baseline, baseline, candidate]
        spent: dict[str, list[tuple[float, int]]] = {}
        with lock.exclusive():
            for subject in order:
                blocks = spent.setdefault(subject.name, [])
                count = max(lengths[subject.name] // 2, 1) if blocks else lengths[subject.name]
                first = ring.cursor
                if subject is candidate:
                    before_candidate(first, count)
                blocks.append(ring.block(subject, count))
                if subject is candidate:
                    after_candidate(first, count)
            for subject in others:
                spent[subject.name] = [ring.block(subject, lengths[subject.name])]
        series.add(spent, candidate.name)
    return series


@dataclass
class _Ring:
    """The sets in a ring, around which the blocks of all sides walk."""

    sets: int
    gap_seconds: float
    cursor: int = 0

    def block(self, subject: Subject, count: int) -> tuple[float, int]:
        """Seconds of `count` calls from the cursor on, and the count."""
        time.sleep(self.gap_seconds + PAUSE_SECONDS * random.random())
        subject.wake()
        seconds = subject.run(self.cursor, count)
        self.cursor = (self.cursor + count) % self.sets
        return seconds, count


def block_length(subject: Subject, sets: int, block_seconds: float) -> int:
    """Calls for a block of about `block_seconds`, at most one for each set. Also warms the subject up."""
    subject.run(0, min(sets, 2))
    probe = min(sets, 8)
    seconds = subject.run(0, probe) / probe
    count = max(1, min(sets, int(block_seconds / max(seconds, 1e-9))))
    if count > probe:
        seconds = subject.run(0, count) / count
        count = max(1, min(sets, int(block_seconds / max(seconds, 1e-9))))
    return max(count, min(sets, 2))
