"""Times candidate and baselines in alternating blocks of calls, on inputs that are not in the cache (passes.py does
this on a CPU).

A block is `count` calls in a row, each on its own set (copy of inputs and outputs); it ends with a device-wide wait.
Blocks of the candidate and of a baseline alternate (A B B A); the second block of each is half as long, and a time that
does not grow with the number of calls is refused. Ratios are paired within a round (A B B A), so that slow drift of the
machine cancels."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch

from ..device_lock import DeviceLock
from ..process.pinning import pinned
from ..running.runner_client import RunnerClient

#: OpenMP threads spin for up to 1.2 ms after a parallel region (GOMP_SPINCOUNT=10000; up to 9 ms by libgomp's default):
#: a block of the other process waits.
SPIN_SECONDS = 0.0015
BLOCK_SECONDS = 0.004
#: How far two processes on a GPU with the same code differ, which no round shows: 0.1% in the median of 275 pairs,
#: 0.47% at most (H200).
PLACEMENT = 0.003
#: With fewer rounds the first of three measurements (99.95%) has no interval.
LEAST_ROUNDS = 12
#: Longest random pause before each block: other work that uses the machine periodically could otherwise synchronise
#: with one of the two sides (on a GPU that another process used half of the time, the side that followed the judge's
#: own work was called slower in 7 of 50 comparisons of a kernel with itself).
PAUSE_SECONDS = 0.002
#: Largest overhead of a block beyond an empty message, before the device works and after it has ended: 0.19 to 0.34 ms
#: (H200), which varies by 0.1 ms and would be 6% of a block.
SWITCH_SECONDS = 0.0005

#: Times that a block is measured again whose answer was late; after that the judge's clock decides.
MOST_LATE = 4

#: A runner on the CPU counts as idle while it is woken if it uses at most `IDLE_SECONDS` of processor time, or
#: `IDLE_TIMES` what it used before it loaded a candidate (0.07 to 0.5 ms in all, two busy cores), or `COLD_TIMES` what
#: it used then with an empty cache (0.5 ms, Intel Xeon). After `WAKES` attempts its block starts unwoken.
IDLE_SECONDS, IDLE_TIMES, COLD_TIMES, WAKES = 0.0005, 3, 1.5, 4

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class TimedSubject(Protocol):
    """A candidate or a baseline that can be timed on the sets, which are copies of the task's inputs and outputs."""

    name: str

    def run(self, first: int, count: int) -> float:
        """Makes `count` calls on the sets first, first+1, … (set 0 follows the last set). Returns their wall time in
        seconds; `count` is at most the number of sets."""

    def wake(self) -> bool:
        """Makes the device or processor switch to this side, without calling a candidate. Returns False if the
        candidate worked nevertheless: it may have computed ahead, from values that it found in memory."""


class TorchSubject:
    """A callable in the judge's process, such as a baseline, to be timed; `calls` are its arguments on each set (copy
    of the inputs). Its outputs are not freed before their block of calls ends, so that their addresses change from call
    to call, as a candidate's do."""

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

    def wake(self) -> bool:
        if self._cuda:
            torch.zeros(1, device="cuda")
            torch.cuda.synchronize()
        return True

    def release(self) -> None:
        self._kept = [None] * len(self._calls)


class PlanSubject:
    """A candidate in its runner (the sandboxed process that executes it), to be timed.

    On CUDA the time of a block of calls comes from the device's events, as for a baseline: no code of a candidate runs
    on the host side that records them. If the judge's clock shows a time that is longer by more than `SWITCH_SECONDS`,
    that time is used instead, and `late` is set: usually the runner's answer was late, because other processes keep the
    host busy (4.3 ms in a block of 0.9 ms beside 11 judges). Without events only the clock is used. From the clock's
    time, the shortest time of an empty block so far is subtracted. `answered` is called for each block, as soon as its
    runner has answered."""

    name = "candidate"

    def __init__(self, runner: RunnerClient, timeout: float, answered: Callable[[], None] | None = None) -> None:
        self._runner, self._timeout, self._answered = runner, timeout, answered
        self.late = False

    def run(self, first: int, count: int) -> float:
        return self._agreed(*self.both(first, count))

    def _agreed(self, own: float, device: float) -> float:
        self.late = 0 < device < own - SWITCH_SECONDS
        return max(device, own - SWITCH_SECONDS) if device else own

    def both(self, first: int, count: int) -> tuple[float, float]:
        """Makes `count` calls from set number `first` on. Returns their seconds by the judge's clock and by the
        device's events; `count` may exceed the number of sets.

        On the CPU the second is 0: there the candidate runs in the process that answers, so its times are not
        trusted."""
        elapsed, answer = self._runner.timed_run(first, count, self._timeout, self._answered)
        device = claimed(answer.get("device_ms")) * 1e-3 if self._runner.command.target == "cuda" else 0.0
        return max(elapsed - self._runner.empty_seconds, 1e-9), device

    def capture(self, number: int, first: int, count: int) -> bool:
        """Lets the runner make CUDA graph number `number` of `count` calls from set number `first` on, for `replay`.
        Returns False if it cannot."""
        message = {"op": "capture", "number": number, "first": first, "count": count}
        answer = self._runner.request(message, self._timeout)
        return answer.get("captured") is True

    def replay(self, number: int) -> float:
        """Launches CUDA graph number `number`. Returns the seconds that its calls take by the device's events, or by
        the judge's clock if that shows a longer time."""
        elapsed, answer = self._runner.timed_request({"op": "replay", "number": number}, self._timeout, self._answered)
        own = max(elapsed - self._runner.empty_seconds, 1e-9)
        return self._agreed(own, claimed(answer.get("device_ms")) * 1e-3)

    def wake(self) -> bool:
        began = self._runner.processor_seconds()
        self._runner.empty_run(self._timeout)
        if self._runner.command.target != "cpu":
            # No code of a plan's candidate runs on the host side.
            return True
        used = self._runner.processor_seconds() - began
        return used <= max(
            IDLE_SECONDS,
            IDLE_TIMES * self._runner.empty_processor_seconds,
            COLD_TIMES * self._runner.cold_processor_seconds,
        )

    def rest(self) -> None:
        """Lets idle threads of the candidate's OpenMP pool fall asleep: their spinning would look like work."""
        if self._runner.command.target == "cpu":
            self._runner.rest(SPIN_SECONDS)


def wake_idle(subject: TimedSubject, renew: Callable[[], None], pause: float = 0.0) -> None:
    """Waits `pause` seconds and wakes the subject. If it runs its own code although it is only woken, calls `renew`,
    which changes the values of its next calls, and tries again. If it does so each time, its calls begin with new
    values and without being woken, so that it has gained nothing."""
    for _ in range(WAKES):
        time.sleep(pause)
        if subject.wake():
            return
        renew()


def claimed(value: object) -> float:
    """Returns a number that a runner reports if it is finite, otherwise 0. A runner may send anything."""
    try:
        figure = float(value) if isinstance(value, (int, float)) else 0.0
    except OverflowError:
        return 0.0
    return figure if math.isfinite(figure) else 0.0


@dataclass
class Round:
    """The seconds per call of each subject (candidate or baseline), by name, in one round of timing."""

    per_call: dict[str, float] = field(default_factory=dict)


@dataclass
class Series:
    """All rounds of a comparison. `growth` holds the candidate's seconds per call in its long and its short block of
    calls, as pairs, for each round that has a short one. `placement` is the relative difference in time between two
    processes that run the same code, which the rounds of one process cannot show."""

    rounds: list[Round] = field(default_factory=list)
    growth: list[tuple[float, float]] = field(default_factory=list)
    calls: int = 0
    placement: float = 0.0

    def add(self, spent: dict[str, list[tuple[float, int]]], candidate: str) -> None:
        """Adds a round. `spent` maps the name of each subject to its blocks of calls, as (seconds, calls)."""
        entry = Round()
        for name, blocks in spent.items():
            entry.per_call[name] = sum(seconds for seconds, _ in blocks) / sum(count for _, count in blocks)
        (long, many), (short, few) = spent[candidate]
        if many >= 2 * few:
            self.growth.append((long / many, short / few))
        self.calls += many + few
        self.rounds.append(entry)

    def behind(self, earlier: Series) -> Series:
        """Returns a series of the rounds of `earlier`, followed by the rounds of this series."""
        rounds, growth = earlier.rounds + self.rounds, earlier.growth + self.growth
        return Series(rounds, growth, earlier.calls + self.calls, self.placement)

    def seconds(self, name: str) -> list[float]:
        return [entry.per_call[name] for entry in self.rounds if name in entry.per_call]

    def ratios(self, over: str, under: str) -> list[float]:
        """Returns the paired ratios `over`/`under` of the seconds per call in each round: the speed-up of `under` if
        `over` is the baseline."""
        pairs = [entry.per_call for entry in self.rounds if over in entry.per_call and under in entry.per_call]
        return [pair[over] / pair[under] for pair in pairs]


@pinned()
def alternate(
    candidate: TimedSubject,
    baseline: TimedSubject,
    others: Sequence[TimedSubject],
    *,
    sets: int,
    rounds: int,
    most_seconds: float,
    lock: DeviceLock,
    before_round: Callable[[int], None] = lambda first: None,
    before_candidate: Callable[[int, int], None] = lambda first, count: None,
    before_others: Callable[[], None] = lambda: None,
    after_candidate: Callable[[int, int], None] = lambda first, count: None,
) -> Series:
    """Times `candidate` against `baseline` in rounds of four blocks of calls, A B B A, and `others` once a round.

    The `sets` input sets (copies of inputs and outputs) form a ring. Each block goes on where the last one ended, so
    that none uses sets which another block has just touched. Before each block an untimed message wakes its process
    (0.4 ms on an H200).

    `before_round(first)` gives all sets new values, from set `first` on around the ring, so that the next ones are out
    of the cache again. `before_candidate(first, count)` gives new values to the `count` sets from `first` on, which the
    candidate is about to read; `before_others` fills the cache in the same way for the other sides.
    `after_candidate(first, count)` checks the outputs of the block that was just timed.

    Each round holds the device exclusively. After `most_seconds` (waiting for the device not counted) no round begins,
    but LEAST_ROUNDS are always made."""
    with lock.exclusive():
        lengths = {
            subject.name: block_length(subject, sets, BLOCK_SECONDS) for subject in (candidate, baseline, *others)
        }
    ring = Ring(sets)
    series = Series(placement=PLACEMENT)
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
                if subject is not candidate:
                    before_others()
                    blocks.append(ring.block(subject, count))
                    continue
                before_candidate(first, count)
                blocks.append(ring.block(subject, count, partial(before_candidate, first, count)))
                after_candidate(first, count)
            for subject in others:
                before_others()
                spent[subject.name] = [ring.block(subject, lengths[subject.name])]
        series.add(spent, candidate.name)
    return series


@dataclass
class Ring:
    """The sets (copies of inputs and outputs) in a circle: set 0 follows the last set. All subjects use them in turn;
    `cursor` is the number of the next set, and `gap_seconds` the pause before each block of calls."""

    sets: int
    gap_seconds: float = 0.0
    cursor: int = 0

    def block(self, subject: TimedSubject, count: int, renew: Callable[[], None] = lambda: None) -> tuple[float, int]:
        """Times `count` calls in a row on the next sets of the ring. Returns (seconds, count). `renew` changes the
        values of these sets, if the candidate works before it is called."""
        wake_idle(subject, renew, self.gap_seconds + PAUSE_SECONDS * random.random())
        seconds = subject.run(self.cursor, count)
        self.cursor = (self.cursor + count) % self.sets
        return seconds, count


def block_length(subject: TimedSubject, sets: int, block_seconds: float) -> int:
    """Returns the number of calls that take about `block_seconds`, at most one for each of `sets` sets. Also warms the
    subject up. The device has to be held exclusively, because calls take longer beside other work."""
    subject.run(0, min(sets, 2))
    probe = min(sets, 8)
    count = longer(punctual(subject, 0, probe), probe, sets, block_seconds)
    if count > probe:
        count = longer(punctual(subject, 0, count), count, sets, block_seconds)
    return max(count, min(sets, 2))


def longer(seconds: float, count: int, sets: int, block_seconds: float) -> int:
    """Returns the number of calls that take about `block_seconds`, estimated from `count` calls that took `seconds`: at
    least 1, and at most `sets`."""
    return max(1, min(sets, int(block_seconds * count / max(seconds, 1e-9))))


def punctual(subject: TimedSubject, first: int, count: int) -> float:
    """Returns the seconds of `count` calls, timed only to find how long a block of calls has to be. They are timed
    again if the answer came late."""
    for _ in range(MOST_LATE):
        seconds = subject.run(first, count)
        if not getattr(subject, "late", False):
            break
    return seconds
