"""Times a candidate in the full tier: in rounds beside the baselines, with a confidence interval for each speed-up."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..baselines import Baselines
from ..passes import BLOCK_SECONDS as PASS_SECONDS
from ..passes import Block, interleave
from ..repeated_measurement import interval_of
from ..statistics import median, relative_spread
from ..suspicion import odd_clocks, odd_growth, until_plausible
from ..task_sets import TaskSets
from ..timing import PlanSubject, Series, TimedSubject, alternate

#: Divisor of the block length on a CPU for each repeat of an implausible series: a block of several time slices of the
#: kernel's scheduler always contains other work on a busy machine, a shorter one not always.
SHORTER = 2
#: Many short rounds: on a shared machine one block in ten is disturbed, which affects its round only.
ROUNDS = {"cpu": 28, "cuda": 18}
#: Seconds after which a series ends early, with the twelve rounds that the interval of a first measurement needs.
MOST_SECONDS = 10.0
#: Seconds for making other inputs of the task, for the integers of one block of the full tier; at most this share of
#: the time that it has.
FULL_SAMPLE_SECONDS, SAMPLE_SHARE = 0.1, 0.01
#: Number of a measurement, from 1, and the most that there are.
MeasurementNumber = tuple[int, int]
ONLY_MEASUREMENT: MeasurementNumber = (1, 1)


@dataclass(frozen=True)
class FullComparison:
    """Options of the full tier: with `compiled`, the candidate is timed beside torch.compile as well as eager mode;
    after `most_seconds` the measurement ends, once there are enough rounds for an interval."""

    compiled: bool = True
    most_seconds: float = MOST_SECONDS


FULL = FullComparison()


class FullTier:
    """Times the candidates of one task beside its baselines, which are timed anew for each candidate."""

    def __init__(self, task_sets: TaskSets, baselines: Baselines) -> None:
        self._task_sets, self._baselines = task_sets, baselines
        self._earlier: Series | None = None

    def measure(
        self,
        subject: PlanSubject,
        after: Callable[[], None],
        measurement: MeasurementNumber = ONLY_MEASUREMENT,
        full: FullComparison = FULL,
    ) -> dict[str, Any]:
        """Returns a dict with times in milliseconds (`candidate_ms`, `eager_ms`, `compile_ms`), speed-ups with their
        intervals, the candidate's relative spread (`noise`) and its number of calls (`samples`). `after` is called
        after each timed block of calls. Raises IncorrectOutput."""
        self._baselines.measure("eager")
        if full.compiled:
            self._baselines.measure("compile")
        self._task_sets.values.sample_seconds = min(FULL_SAMPLE_SECONDS, SAMPLE_SHARE * full.most_seconds)
        known = ["compile", "eager"] if full.compiled and not self._baselines.uncompiled else ["eager"]
        baselines = [self._baselines.subject(which) for which in known]

        def check(first: int, count: int, compared: bool) -> None:
            after()
            if not compared:
                return
            sets = self._task_sets.sets.count
            last = (first + count - 1) % sets
            other = (first + random.SystemRandom().randrange(count)) % sets
            self._task_sets.outputs.check(subject, {last, other})

        series = until_plausible(
            lambda repeat: self.compare(
                subject, baselines[0], list(baselines[1:]), check, repeat=repeat, most_seconds=full.most_seconds
            ),
            odd_growth,
        )
        series = self._with_earlier_rounds(series, measurement)
        for baseline in baselines:
            baseline.release()
        mine, plain = (median(series.seconds(name)) for name in ("candidate", "eager"))
        if self._task_sets.target == "cuda" and not self._baselines.nominal:
            with self._task_sets.lock.exclusive():
                until_plausible(lambda repeat: odd_clocks(subject, mine), str)
        by_eager, eager_low, eager_high = interval_of(series, "eager", "candidate", *measurement)
        self._baselines.seconds = {"eager": plain}
        return {
            "candidate_ms": mine * 1e3,
            "eager_ms": plain * 1e3,
            "speedup_vs_eager": by_eager,
            "speedup_vs_eager_ci": [eager_low, eager_high],
            "noise": relative_spread(series.seconds("candidate")),
            "samples": series.calls,
            **(self._over_compile(series, measurement) if "compile" in known else {}),
        }

    def _over_compile(self, series: Series, measurement: MeasurementNumber) -> dict[str, Any]:
        """Returns a dict with the time under torch.compile in milliseconds, and the speed-up over torch.compile with
        its interval."""
        theirs = median(series.seconds("compile"))
        speedup, low, high = interval_of(series, "compile", "candidate", *measurement)
        self._baselines.seconds["compile"] = theirs
        return {"compile_ms": theirs * 1e3, "speedup_vs_compile": speedup, "speedup_vs_compile_ci": [low, high]}

    def _with_earlier_rounds(self, series: Series, measurement: MeasurementNumber) -> Series:
        """Returns the rounds of the candidate's earlier measurements, followed by those of `series`; the first
        measurement has no earlier rounds."""
        self._earlier = series if measurement[0] == 1 or self._earlier is None else series.behind(self._earlier)
        return self._earlier

    def compare(
        self,
        subject: PlanSubject,
        baseline: TimedSubject,
        others: list[TimedSubject],
        check: Callable[[int, int, bool], None],
        *,
        repeat: int = 0,
        most_seconds: float = MOST_SECONDS,
    ) -> Series:
        """Times the candidate in rounds beside `baseline` and `others`. `check(first, count, compared)` checks the
        `count` calls that were just timed, on the sets (copies of inputs and outputs) from number `first` on, and
        compares their values if `compared` is true.

        If `repeat` is not 0, an implausible series is measured again; on a CPU its blocks of calls are shorter then.
        After `most_seconds` the least number of rounds is enough."""
        on_clock, values = self._baselines.on_clock, self._task_sets.values
        clocked, clocks = on_clock(subject), [on_clock(other) for other in (baseline, *others)]

        def check_pass(mine: Block, compared: bool) -> None:
            values.require_written()
            check(mine.first, mine.calls, compared)

        if self._task_sets.target == "cpu":
            return interleave(
                clocked,
                clocks,
                sets=self._task_sets.sets.count,
                rounds=ROUNDS["cpu"],
                most_seconds=min(most_seconds, MOST_SECONDS),
                block_seconds=PASS_SECONDS / SHORTER**repeat,
                lock=self._task_sets.lock,
                prepare=partial(self._task_sets.prepare_pass, subject),
                checked=check_pass,
            )
        unseen = False

        def renew_all(first: int) -> None:
            nonlocal unseen
            values.refresh(first)
            unseen = True

        def prepare(first: int, count: int) -> None:
            # The candidate may know all values that were in memory while its process could run.
            nonlocal unseen
            block = self._task_sets.sets.around(first, count)
            if not unseen or values.integers_vary:
                values.renew(block)
            else:
                values.evict()
            values.mark(block)
            unseen = False

        def checked(first: int, count: int) -> None:
            values.require_written()
            check(first, count, True)

        return alternate(
            clocked,
            clocks[0],
            clocks[1:],
            sets=self._task_sets.sets.count,
            rounds=ROUNDS[self._task_sets.target],
            most_seconds=min(most_seconds, MOST_SECONDS),
            lock=self._task_sets.lock,
            before_round=renew_all,
            before_candidate=prepare,
            before_others=values.evict,
            after_candidate=checked,
        )
