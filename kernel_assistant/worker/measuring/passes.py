"""Times candidate and baselines on a CPU. A block is several calls in a row that are timed together; in a pass, each
side runs one short block, in random order. A round has up to four passes, of which only the faster half counts.

Other work disturbs single blocks, on either side, and a machine's speed drifts within a tenth of a second: on two
shared cores a ratio of sums over 20 ms spreads by 6%, a ratio of the means of faster halves by 2% (docs/experiments.md,
125). Leaving out the slower half is fair because every pass has values that are new to the candidate: results that it
computes ahead for another pass are of no use."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ..device_lock import DeviceLock
from ..process.pinning import pinned
from . import timing
from .statistics import faster_half
from .timing import LEAST_ROUNDS, SPIN_SECONDS, Ring, Round, Series, TimedSubject, alternate, block_length

BLOCK_SECONDS = 0.005
#: Passes of a round: as many as fit into `ROUND_SECONDS`, or into a round's share of the time that there is. Many
#: rounds are worth more than many passes: the interval of twelve is their range, that of 28 leaves out the odd ones.
MOST_PASSES, ROUND_SECONDS = 4, 0.15
#: In every HALF_EVERY-th round, a block of half the length is timed too.
HALF_EVERY = 3
#: How far two processes with the same code differ for as long as they live (eight pairs: 1.5% in the mean, 4% at most).
PLACEMENT = 0.015
#: Blocks of a round whose outputs are compared, in the mean.
COMPARED = 1.0


class Block(NamedTuple):
    """`calls` calls in a row that are timed together. Each uses its own set (copy of inputs and outputs), beginning
    with set number `first`; set 0 follows the last set."""

    first: int
    calls: int


#: Gives new values to the sets of a pass, and marks the second block, which is the candidate's.
Prepare = Callable[[Block, Block], None]
#: Checks the candidate's block that was just timed; the flag says whether its values are compared.
Checked = Callable[[Block, bool], None]


def _as_they_are(whole: Block, mine: Block) -> None:
    pass


def _unchecked(mine: Block, compared: bool) -> None:
    pass


class TimedPasses:
    """Times candidate and baselines on a CPU in passes. In a pass each of them runs one block (several calls in a row,
    timed together), in random order. The first of `subjects` is the candidate; `sets` is the number of sets, copies of
    inputs and outputs. `prepare` gives new values to the sets before each pass."""

    def __init__(
        self,
        subjects: Sequence[TimedSubject],
        sets: int,
        block_seconds: float = BLOCK_SECONDS,
        prepare: Prepare = _as_they_are,
    ) -> None:
        self.subjects, self._prepare = list(subjects), prepare
        self._ring = Ring(sets, SPIN_SECONDS)
        self._sets = sets
        self.lengths = {subject.name: block_length(subject, sets, block_seconds) for subject in subjects}

    @property
    def candidate(self) -> str:
        return self.subjects[0].name

    def one(self) -> tuple[dict[str, float], Block]:
        """Times one pass. Returns the seconds per call of each subject, by name, and the candidate's block; the outputs
        of that block are still in its sets."""
        order = random.sample(self.subjects, len(self.subjects))
        cursor = first = self._ring.cursor
        for subject in order:
            if subject is self.subjects[0]:
                mine = Block(cursor, self.lengths[subject.name])
            cursor = (cursor + self.lengths[subject.name]) % self._sets
        whole = Block(first, min(sum(self.lengths.values()), self._sets))
        self._prepare(whole, mine)
        return {subject.name: self._timed(subject, self.lengths[subject.name]) for subject in order}, mine

    def half(self) -> tuple[float, Block]:
        """Times the candidate in a block of half the length. Returns the seconds per call and the block."""
        mine = Block(self._ring.cursor, max(self.lengths[self.candidate] // 2, 1))
        self._prepare(mine, mine)
        return self._timed(self.subjects[0], mine.calls), mine

    def _timed(self, subject: TimedSubject, count: int) -> float:
        mine = Block(self._ring.cursor, count)
        renew = partial(self._prepare, mine, mine) if subject is self.subjects[0] else _nothing
        seconds, calls = self._ring.block(subject, count, renew)
        return seconds / calls


def _nothing() -> None:
    pass


@pinned()
def interleave(
    candidate: TimedSubject,
    others: Sequence[TimedSubject],
    *,
    sets: int,
    rounds: int,
    most_seconds: float,
    block_seconds: float = BLOCK_SECONDS,
    lock: DeviceLock,
    prepare: Prepare = _as_they_are,
    checked: Checked = _unchecked,
) -> Series:
    """Times `candidate` beside `others` on a CPU, in rounds of passes (see the module's docstring), on `sets` copies of
    inputs and outputs. `checked` is called after each pass with a flag, drawn at random after the block has run, that
    says whether to compare the block's outputs. The series ends after `rounds` rounds, or after `most_seconds` (waiting
    for the device not counted) with at least twelve."""
    drawn = random.SystemRandom()
    with lock.exclusive():
        passes = TimedPasses([candidate, *others], sets, block_seconds, prepare)
    count, series = MOST_PASSES, Series(placement=PLACEMENT)
    round_seconds = min(ROUND_SECONDS, most_seconds / rounds)
    began = time.monotonic() - lock.waited
    for index in range(rounds):
        if index >= LEAST_ROUNDS and time.monotonic() - lock.waited - began > most_seconds:
            break
        rows: list[dict[str, float]] = []
        with lock.exclusive():
            while len(rows) < count:
                pass_began = time.monotonic()
                per_call, mine = passes.one()
                count = passes_of(time.monotonic() - pass_began, round_seconds)
                checked(mine, drawn.random() < COMPARED / count)
                rows.append(per_call)
            halved = passes.half() if index % HALF_EVERY == 0 else None
            if halved is not None:
                checked(halved[1], True)
        series.rounds.append(Round({name: faster_half([one[name] for one in rows]) for name in rows[0]}))
        series.calls += len(rows) * passes.lengths[candidate.name]
        if halved is not None:
            series.calls += halved[1].calls
            if passes.lengths[candidate.name] >= 2 * halved[1].calls:
                series.growth.append((series.rounds[-1].per_call[candidate.name], halved[0]))
    return series


def passes_of(seconds: float, round_seconds: float = ROUND_SECONDS) -> int:
    """Returns the number of passes in a round of at most `round_seconds`. `seconds` is the time of one pass, including
    the time for putting new values into the inputs."""
    return max(1, min(MOST_PASSES, int(round_seconds / max(seconds, 1e-9))))


def expected_seconds(target: str, subjects: Sequence[TimedSubject]) -> float:
    """Returns the seconds that `beside` needs at least for these subjects, the candidate first. Estimates them from two
    calls of each."""
    calls = [subject.run(0, 2) / 2 for subject in subjects]
    least = BLOCK_SECONDS if target == "cpu" else timing.BLOCK_SECONDS
    blocks = [max(least, 2 * seconds) for seconds in calls]
    if target == "cpu":
        a_round = passes_of(sum(blocks)) * (sum(blocks) + len(blocks) * SPIN_SECONDS) + blocks[0] / 2
    else:
        # A B B A with second blocks of half the length.
        a_round = sum(blocks) + sum(blocks[:2]) / 2
    return LEAST_ROUNDS * a_round + 10 * sum(calls)


def beside(
    target: str,
    candidate: TimedSubject,
    baselines: Sequence[TimedSubject],
    *,
    sets: int,
    rounds: int,
    most_seconds: float,
    lock: DeviceLock,
) -> Series:
    """Times `candidate`, which must be trusted code, against the baselines, on `sets` copies of inputs and outputs: in
    passes on a CPU, in alternating blocks of calls on a GPU, for at most `rounds` rounds or about `most_seconds`."""
    if target == "cpu":
        return interleave(candidate, baselines, sets=sets, rounds=rounds, most_seconds=most_seconds, lock=lock)
    return alternate(
        candidate, baselines[0], baselines[1:], sets=sets, rounds=rounds, most_seconds=most_seconds, lock=lock
    )
