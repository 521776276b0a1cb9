"""Times a candidate in the quick tier on a GPU: everything that is timed, while the device lock is held once.

Other judges wait meanwhile, so the lock is held only for timing and for the steps that depend on timing: putting in new
values, and at the end one comparison of the outputs. Before that, without the lock, the candidate runs once on the
copies of inputs and outputs, and its CUDA graphs are made."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from ...running.buffer_sets import BufferSets
from ..set_values import Samples, SetValues, require_written
from ..statistics import median, spread
from ..timed_outputs import TimedCall, TimedOutputs
from ..timing import MOST_LATE, PlanSubject, TimedSubject, longer, wake_idle

#: Blocks of a candidate, and CUDA graphs of one that is bound by the host, each over other sets.
BLOCKS, GRAPHS = 3, 3
#: A call is short if `SHORT_BLOCK_SECONDS` have time for more than `MANY_CALLS` of it; its blocks take that long.
SHORT_BLOCK_SECONDS, MANY_CALLS = 0.0012, 16
#: Fewest calls of a block.
FEWEST_CALLS = 2
#: Graphs may be shorter than blocks, but no shorter than this, if each can have sets of its own then.
LEAST_GRAPH_SECONDS = 0.0003
#: While times differ by more than `MOST_SPREAD`, others are added, up to `MOST_TIMES`.
MOST_SPREAD, MOST_TIMES = 0.01, 6
#: A call that takes so many times as long as the host needs to launch it is not bound by the host, and its time in a
#: graph would say no more.
HOST_TIMES = 10
#: Calls from which the length of a block is estimated before the lock is held, and how often.
PROBE, PROBES = 8, 2
#: Beside other judges, a call takes at most this many times as long as alone.
MOST_SLOWED = 8
#: Blocks and graphs with more than this many times the needed number of calls are made again.
TOO_LONG = 3
#: Calls of each block and graph whose outputs are compared.
CHECKED_CALLS = 2


@dataclass(frozen=True)
class QuickTimes:
    """Seconds per call when the host launches the calls, and in CUDA graphs (None without). `noise` is the relative
    spread of the times of all graphs, or of all blocks of calls if there are no graphs; `samples` is the number of
    blocks and graphs."""

    seconds: float
    graph_seconds: float | None
    noise: float
    samples: int


@dataclass(frozen=True)
class _TimedBlock:
    """`calls` calls in a row that are timed together, on the sets (copies of inputs and outputs) from number `first`
    on. `run` makes the calls and returns their seconds."""

    first: int
    calls: int
    run: Callable[[], float]


class QuickTiming:
    """Times one candidate on a task's sets (copies of inputs and outputs), in blocks of calls that take about
    `block_seconds`. The host needs at most `host_seconds` to launch a call of the candidate; a call is expected to take
    `expected_seconds`. With `together`, where no code of the candidate can run between blocks, several blocks share one
    change of values.

    A candidate that computes in one of these blocks the results of another gains nothing, because the mean over the
    blocks counts."""

    def __init__(
        self,
        sets: BufferSets,
        values: SetValues,
        outputs: TimedOutputs,
        block_seconds: float,
        host_seconds: float,
        expected_seconds: float,
        *,
        together: bool,
    ) -> None:
        self._sets, self._values, self._outputs = sets, values, outputs
        self._most_block_seconds, self._host_bound = block_seconds, HOST_TIMES * host_seconds
        self._call_seconds, self._together = expected_seconds, together
        self._graph_calls = 0
        #: The first set of each graph.
        self._firsts: list[int] = []
        #: Inputs that were drawn for the next blocks.
        self._drawn: list[Samples] = []
        self._left: list[torch.Tensor] = []
        self._held: list[TimedCall] = []

    def get_ready(self, subject: PlanSubject) -> None:
        """Runs the candidate, untimed, on sets whose values change later, so that the outputs of a candidate that
        remembers results by address are wrong then. Makes its CUDA graphs, if launching on the host may limit its
        speed."""
        count, probe = self._sets.count, min(self._sets.count, PROBE)
        # Other work can only make it slower.
        measured = min(subject.run(0, probe) for _ in range(PROBES)) / probe
        self._call_seconds = min(measured, max(self._call_seconds, measured / MOST_SLOWED))
        subject.run(0, min(count, BLOCKS * self._length()))
        # As many as there are groups of blocks, for as many calls as one may have.
        groups = 2 if self._together else BLOCKS
        self._drawn = [self._values.draw(count) for _ in range(groups if self._values.integers_vary else 0)]
        if self._call_seconds < self._host_bound:
            self._capture(subject)

    def measure(self, subject: PlanSubject, timed: TimedSubject, after: Callable[[], None]) -> QuickTimes:
        """Times the candidate `subject`. The device has to be held exclusively. `timed` is `subject` itself, or in
        tests a wrapper that reports invented times. `after` is called after each group of blocks."""
        means, times, length = list[float](), list[float](), 0

        def add(blocks: int) -> None:
            begin = len(times) * length
            firsts = [(begin + number * length) % self._sets.count for number in range(blocks)]
            some = [_TimedBlock(first, length, partial(timed.run, first, length)) for first in firsts]
            self._add(means, times, self._timed(subject, some, after))
            # Other work can only make a block slower.
            self._call_seconds = min(means)

        for _ in range(MOST_LATE):
            means, times, length = [], [], self._length()
            add(1)
            if _fits(length, self._length()) and not self._is_short():
                add(BLOCKS - 1)
            if _fits(length, self._length()):
                break
        graphs = self._replayed(subject, after) if self._call_seconds < self._host_bound else None
        if graphs is None and len(times) < BLOCKS:
            add(BLOCKS - len(times))
        while _differ(times):
            add(BLOCKS)
        seconds = self._typical(means)
        if graphs is None:
            return QuickTimes(seconds, None, spread(times), len(times))
        of_groups, of_graphs = graphs
        return QuickTimes(seconds, self._typical(of_groups), spread(of_graphs), len(times) + len(of_graphs))

    def check(self, subject: PlanSubject) -> None:
        """Raises IncorrectOutput if a timed call did not write its outputs, or if outputs that were kept for comparison
        are wrong."""
        require_written(self._left)
        self._outputs.check_held(subject, self._held)
        self._left, self._held, self._drawn = [], [], []

    def _replayed(self, subject: PlanSubject, after: Callable[[], None]) -> tuple[list[float], list[float]] | None:
        """Times the CUDA graphs. Returns the mean seconds per call of each group of graphs that were timed after one
        change of values, and the seconds per call of each graph; None if the calls cannot be captured. Graphs that turn
        out to be too short or too long are made again."""
        needed = self._graph_length()
        if not self._firsts or not _fits(self._graph_calls, needed):
            self._capture(subject)
        means, times = list[float](), list[float]()
        while self._firsts and (not times or _differ(times)):
            some = [
                _TimedBlock(first, self._graph_calls, partial(subject.replay, number))
                for number, first in enumerate(self._firsts)
            ]
            self._add(means, times, self._timed(subject, some, after))
        return (means, times) if times else None

    def _capture(self, subject: PlanSubject) -> None:
        """Lets the runner make the CUDA graphs. If it cannot, there are none."""
        calls = self._graph_length()
        firsts = [(self._length() + number * calls) % self._sets.count for number in range(GRAPHS)]
        made = all(subject.capture(number, first, calls) for number, first in enumerate(firsts))
        self._firsts, self._graph_calls = firsts if made else [], calls

    def _timed(
        self, subject: PlanSubject, blocks: list[_TimedBlock], after: Callable[[], None]
    ) -> list[list[tuple[float, int]]]:
        """Times the blocks. Returns (seconds, calls) of each block, in groups. Before each group, the inputs of all its
        blocks get new values; so no set of inputs occurs twice in a group."""
        if not self._together or sum(block.calls for block in blocks) > self._sets.count:
            return [self._timed_together(subject, [block], after) for block in blocks]
        return [self._timed_together(subject, blocks, after)]

    def _timed_together(
        self, subject: PlanSubject, blocks: list[_TimedBlock], after: Callable[[], None]
    ) -> list[tuple[float, int]]:
        """Times a group of blocks, after all their inputs got new values. Returns (seconds, calls) of each block.
        `after` is called once the blocks have run. If the runner answered later than its own clock explains, the whole
        group is timed again."""
        rings = [self._sets.around(block.first, block.calls) for block in blocks]
        indices = [index for ring in rings for index in ring]

        def renew() -> None:
            self._values.renew_and_mark(indices, self._drawn.pop() if self._drawn else None)

        for _ in range(MOST_LATE):
            renew()
            wake_idle(subject, renew)
            seconds, late = list[float](), False
            for block in blocks:
                seconds.append(block.run())
                late = late or subject.late
            after()
            self._left += self._values.left()
            if not late:
                break
        for ring in rings:
            self._hold(subject, random.SystemRandom().sample(ring, min(CHECKED_CALLS, len(ring))))
        return [(spent, block.calls) for spent, block in zip(seconds, blocks, strict=True)]

    def _hold(self, subject: PlanSubject, indices: list[int]) -> None:
        """Keeps outputs and inputs of the timed calls on the sets with these indices, for `check`; calls whose tensors
        are too large to keep are checked now."""
        for index in indices:
            call = self._outputs.hold(index)
            if call.kept:
                self._held.append(call)
            else:
                self._outputs.check_call(subject, call)

    def _typical(self, means: list[float]) -> float:
        """Returns the seconds per call of the candidate. `means` has the mean seconds per call of each group. A group
        is the blocks (calls that are timed together) or CUDA graphs that were timed after one change of the input
        values. The result is the minimum, because other work can only make a group slower; it is the median if the
        candidate's own code runs on the host and could shorten a group."""
        return min(means) if self._together else median(means)

    @staticmethod
    def _add(means: list[float], times: list[float], groups: list[list[tuple[float, int]]]) -> None:
        for group in groups:
            means.append(sum(seconds for seconds, _ in group) / sum(calls for _, calls in group))
            times += [seconds / calls for seconds, calls in group]

    def _is_short(self) -> bool:
        """Whether calls may be bound by the host, and are so short that a block of `SHORT_BLOCK_SECONDS` has enough of
        them."""
        return self._call_seconds < min(self._host_bound, SHORT_BLOCK_SECONDS / MANY_CALLS)

    def _length(self) -> int:
        """Returns the number of calls in a block."""
        seconds = SHORT_BLOCK_SECONDS if self._is_short() else self._most_block_seconds
        calls = longer(self._call_seconds, 1, self._sets.count, min(seconds, self._most_block_seconds))
        return max(calls, min(self._sets.count, FEWEST_CALLS))

    def _graph_length(self) -> int:
        """Returns the number of calls in a CUDA graph: as many as in a block, or fewer if then no two graphs share a
        set of inputs and the graphs are still long enough."""
        length, apart = self._length(), self._sets.count // GRAPHS
        return min(length, apart) if apart * self._call_seconds >= LEAST_GRAPH_SECONDS else length


def _fits(calls: int, needed: int) -> bool:
    """Whether a block of `calls` calls is close enough to `needed` calls, so that it need not be made again."""
    return needed / 2 <= calls <= TOO_LONG * needed


def _differ(times: list[float]) -> bool:
    """Whether the relative spread of the times is so large that more have to be measured; False once there are
    `MOST_TIMES`."""
    return len(times) < MOST_TIMES and spread(times) > MOST_SPREAD
