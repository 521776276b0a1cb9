"""The quick tier on a GPU: all that is timed of a candidate, in one turn on the device.

Other judges wait meanwhile, so that only timing is done in it, and what depends on it: new values between blocks, and
at the end one comparison of what was written. The candidate sees its sets, and its graphs are made, before the turn.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import torch

from ..running.buffer_sets import BufferSets
from .set_values import Samples, SetValues, require_written
from .statistics import median, spread
from .timed_outputs import TimedCall, TimedOutputs
from .timing import MOST_LATE, PlanSubject, TimedSubject, longer, punctual, wake_idle

#: Blocks of a candidate, and of one whose calls are short and bound by the host. CUDA graphs of one that is bound by
#: the host, each over other sets.
BLOCKS, BLOCKS_OF_SHORT_CALLS, GRAPHS = 3, 1, 3
#: Seconds of a block of short calls, which are those of which it has more than `MANY_CALLS`; fewest calls of any block.
SHORT_BLOCK_SECONDS, MANY_CALLS, FEWEST_CALLS = 0.0012, 16, 2
#: While times differ by more than `MOST_SPREAD`, others are added, up to `MOST_TIMES`.
MOST_SPREAD, MOST_TIMES = 0.01, 6
#: A call that takes so many times as long as the host needs to launch it is not bound by the host, and its time in a
#: graph would say no more.
HOST_TIMES = 10
#: Calls from which the length of a block is estimated, and how often.
PROBE, PROBES = 8, 2
CHECKED_CALLS = 2


class QuickTurn:
    """Times one candidate on a task's sets, in blocks of about `block_seconds`. The host launches a call of it in
    `host_seconds` at most."""

    def __init__(
        self, sets: BufferSets, values: SetValues, outputs: TimedOutputs, block_seconds: float, host_seconds: float
    ) -> None:
        self._sets, self._values, self._outputs = sets, values, outputs
        self._block_seconds, self._host_bound = block_seconds, HOST_TIMES * host_seconds
        self._length, self._blocks = 0, BLOCKS
        #: The first set of each graph, and the calls of each.
        self._firsts: list[int] = []
        self._graph_length = 0
        #: Inputs that were drawn for the next blocks.
        self._drawn: list[Samples] = []
        self._left: list[torch.Tensor] = []
        self._held: list[TimedCall] = []

    def get_ready(self, subject: PlanSubject) -> None:
        """Run the candidate, untimed, on sets whose values change later: if it remembers results by address, its
        outputs are wrong then. Where the host may bind it, its graphs are made."""
        count, probe = self._sets.count, min(self._sets.count, PROBE)
        # Other work can only make it slower.
        seconds = min(subject.run(0, probe) for _ in range(PROBES))
        bound = seconds / probe < self._host_bound
        if bound and MANY_CALLS * seconds / probe < SHORT_BLOCK_SECONDS:
            self._block_seconds, self._blocks = min(self._block_seconds, SHORT_BLOCK_SECONDS), BLOCKS_OF_SHORT_CALLS
        self._length = self._longer(seconds, probe)
        subject.run(0, min(count, BLOCKS * self._length))
        # The length of a block is measured on these.
        self._values.renew(self._sets.around(0, self._length))
        # For as many calls as a block may have, whatever the candidate took until now.
        blocks = self._blocks + GRAPHS if self._values.integers_vary else 0
        self._drawn = [self._values.draw(count) for _ in range(blocks)]
        if bound:
            self._capture(subject, self._length)

    def measure(
        self, subject: PlanSubject, timed: TimedSubject, after: Callable[[], None]
    ) -> tuple[list[float], list[float]]:
        """Seconds a call in blocks of calls, and in CUDA graphs if the host binds it and it can be captured. The device
        has to be held exclusively. `timed` is `subject` on the clock that counts."""
        subject.wake()
        length = self._longer(punctual(timed, 0, self._length), self._length)
        times = list[float]()

        def add_up_to(blocks: int) -> None:
            nonlocal length
            while len(times) < blocks or _differ(times):
                first = len(times) * length % self._sets.count
                spent = self._timed(subject, first, length, partial(timed.run, first, length), after)
                times.append(spent / length)
                if spent < self._block_seconds / 2:
                    length = self._longer(spent, length)

        for blocks in (self._blocks, BLOCKS):
            add_up_to(blocks)
            graphs = self._replayed(subject, length, after) if median(times) < self._host_bound else []
            if graphs:
                break
        return times, graphs

    def check(self, subject: PlanSubject) -> None:
        """Raise IncorrectOutput unless the timed calls wrote what they should have."""
        require_written(self._left)
        self._outputs.check_held(subject, self._held)
        self._left, self._held, self._drawn = [], [], []

    def _capture(self, subject: PlanSubject, length: int) -> None:
        """Have the runner make the graphs, each of so many calls; there are none if it cannot."""
        firsts = [(self._blocks + number) * length % self._sets.count for number in range(GRAPHS)]
        made = all(subject.capture(number, first, length) for number, first in enumerate(firsts))
        self._firsts, self._graph_length = firsts if made else [], length

    def _replayed(self, subject: PlanSubject, length: int, after: Callable[[], None]) -> list[float]:
        """Seconds a call in each graph; empty if the calls cannot be captured. Graphs that turn out to be too short are
        made again with `length` calls."""
        if not self._firsts or self._graph_length < length / 2:
            self._capture(subject, length)
        calls, times = self._graph_length, list[float]()
        while self._firsts and (len(times) < GRAPHS or _differ(times)):
            number = len(times) % GRAPHS
            replay = partial(subject.replay, number)
            times.append(self._timed(subject, self._firsts[number], calls, replay, after) / calls)
        return times

    def _timed(
        self,
        subject: PlanSubject,
        first: int,
        length: int,
        block: Callable[[], float],
        after: Callable[[], None],
    ) -> float:
        """Seconds of a block on `length` sets from `first` on with new values. A block with a late answer is
        repeated."""
        indices = self._sets.around(first, length)

        def renew() -> None:
            self._values.renew_and_mark(indices, self._drawn.pop() if self._drawn else None)

        for _ in range(MOST_LATE):
            renew()
            wake_idle(subject, renew)
            seconds = block()
            after()
            self._left += self._values.left()
            if not subject.late:
                break
        used = sorted(set(indices))
        for index in random.SystemRandom().sample(used, min(CHECKED_CALLS, len(used))):
            call = self._outputs.hold(index)
            if call.kept:
                self._held.append(call)
            else:
                self._outputs.check_call(subject, call)
        return seconds

    def _longer(self, seconds: float, length: int) -> int:
        calls = longer(seconds, length, self._sets.count, self._block_seconds)
        return max(calls, min(self._sets.count, FEWEST_CALLS))


def _differ(times: list[float]) -> bool:
    """Whether another time should be added."""
    return len(times) < MOST_TIMES and spread(times) > MOST_SPREAD
