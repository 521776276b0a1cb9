"""Tests that a job keeps to its budget, on a clock that evaluations move. It ends with a result, or reports that it has
none yet.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from kernel_assistant.agent.budget import Budget
from kernel_assistant.agent.loop import NOT_COMPARED, run_episode
from kernel_assistant.environment.job_clock import LATEST, JobClock, Stopping
from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.stage_messages import LEAST_SECONDS, of_slow_opening, opening_seconds
from kernel_assistant.errors import Cancelled, OutOfTime
from kernel_assistant.events import AnyEvent, Warned
from kernel_assistant.records import Baseline, Candidate, Evaluation, Outcome, Stage, StopReason, Tier, Timing
from kernel_assistant.session.kinds.free_wins import FreeWinStep
from tests.agent.test_loop import ByHand
from tests.common.clocks import Moved
from tests.common.results import accuracy_of
from tests.judge.kernels import environment, new_worker, numbered

BUDGET = 100.0
#: Ten million statements, which take any compiler many seconds.
MANY = "".join(f"#define M{n + 1} M{n} M{n} M{n} M{n} M{n} M{n} M{n} M{n} M{n} M{n}\n" for n in range(7))
MANY = f"#define M0 n = n * 3 + 1;\n{MANY}"
LONG = "volatile int n = 0; M7\n"


class Slow:
    """Stands in for the environment of a large module: each evaluation moves the clock by its duration and ends at the
    limit. All candidates get the same time, which is that of the baselines.
    """

    def __init__(
        self,
        environment: Environment,
        clock: JobClock,
        time: Moved,
        quick: float,
        *full: float,
        compiled_after: float = 0.0,
    ) -> None:
        self._environment, self._clock, self._time, self._quick, self._full = environment, clock, time, quick, [*full]
        self._compiled_after = compiled_after
        self.task, self.graph, self.device = environment.task, environment.graph, environment.device

    def baseline(self, *, compiled: bool) -> Baseline:
        return self._environment.baseline(compiled=compiled)

    def wait_for_compile(self, seconds: float) -> bool:
        self._time.seconds += min(seconds, max(self._compiled_after - self._time.seconds, 0.0))
        return self._time.seconds >= self._compiled_after

    def iterate(self, candidates: Sequence[Candidate], tier: Tier) -> Iterator[Evaluation]:
        for candidate in candidates:
            self._pass(self._quick)
            yield _alike(candidate, tier, self._quick)

    def confirm(self, candidate: Candidate, *, looks: int = 1, until: float = 0.0) -> Evaluation:
        self._pass(self._full.pop(0))
        return _alike(candidate, Tier.full)

    def _pass(self, seconds: float) -> None:
        self._time.seconds += min(seconds, max(self._clock.until_limit(), 0.0))
        self._clock.check()


def _alike(candidate: Candidate, tier: Tier, seconds: float = 0.0) -> Evaluation:
    timing = Timing(
        candidate_ms=1.0,
        eager_ms=1.0,
        speedup_vs_eager=1.0,
        speedup_vs_compile_ci=(0.9, 1.1),
        speedup_vs_eager_ci=(0.9, 1.1),
    )
    return Evaluation(
        candidate=candidate.hash(),
        tier=tier,
        outcome=Outcome.correct,
        stage=Stage.profile,
        message="",
        seconds={"profile": seconds},
        accuracy=accuracy_of(),
        timing=timing,
    )


@pytest.mark.timed
@pytest.mark.parametrize(
    ("opening", "quick", "full", "reason", "confirmed"),
    [
        (0.0, 40.0, [30.0], StopReason.wall_time, True),
        (0.0, 40.0, [170.0], StopReason.unverified, False),
        (0.0, 40.0, [5.0, 170.0], StopReason.wall_time, True),
        (0.0, 170.0, [], StopReason.wall_time, False),
        (110.0, 5.0, [170.0], StopReason.unverified, False),
        (130.0, 5.0, [5.0], StopReason.wall_time, False),
    ],
)
def test_a_job_ends_within_its_budget_and_a_fifth(norm, cancel, opening, quick, full, reason, confirmed):
    time = Moved()
    clock = JobClock(BUDGET, now=time)
    time.seconds += opening
    slow = Slow(norm, clock, time, quick, *full)
    events: list[AnyEvent] = []
    policy = ByHand(*[[each] for each in numbered(9)])
    trajectory = run_episode(
        slow, policy, Budget(seconds=clock.search_seconds()), emit=events.append, cancel=cancel, clock=clock
    )
    assert time.seconds <= max(LATEST * BUDGET, opening)
    assert (trajectory.stop_reason, trajectory.best is not None) == (reason, confirmed)
    assert all(step.ended <= LATEST * BUDGET for step in trajectory.steps)


@pytest.mark.parametrize(
    ("compiled_after", "full", "evaluations", "told"),
    [
        (4.0, [10.0], 1, False),
        (50.0, [10.0, 9.0], 2, False),
        (50.0, [10.0, 90.0], 1, False),
        (115.0, [10.0], 1, True),
    ],
)
def test_a_result_is_confirmed_before_torch_compile_is_ready(norm, cancel, compiled_after, full, evaluations, told):
    """Ready while the search runs, behind the first full evaluation, with too little time for another, and too late."""
    time = Moved()
    clock = JobClock(BUDGET, now=time)
    slow = Slow(norm, clock, time, 5.0, *full, compiled_after=compiled_after)
    events: list[AnyEvent] = []
    budget = Budget(seconds=clock.search_seconds())
    trajectory = run_episode(slow, ByHand(numbered(1)), budget, emit=events.append, cancel=cancel, clock=clock)
    assert trajectory.best is not None and trajectory.final == trajectory.in_full[-1]
    assert len(trajectory.in_full) == evaluations
    assert (Warned(message=NOT_COMPARED) in events) == told


def test_the_search_leaves_time_for_a_slow_confirmation(norm, cancel):
    """A full evaluation takes eight times as long as the longest of the search, and may have half of the budget."""
    time = Moved()
    clock = JobClock(BUDGET, now=time)
    slow = Slow(norm, clock, time, 6.0, 50.0)
    policy = ByHand(*[[each] for each in numbered(40)])
    budget = Budget(seconds=clock.search_seconds(), patience=40)
    trajectory = run_episode(slow, policy, budget, emit=lambda event: None, cancel=cancel, clock=clock)
    assert trajectory.best is not None and len(trajectory.steps) == 9


def test_the_budget_is_shared_out() -> None:
    """Opening gets its time first. The search gets the time that is not reserved for the full tier and the free
    wins.
    """
    time = Moved()
    clock = JobClock(120.0, free=40.0, now=time)
    time.seconds += 10.0
    assert clock.search_seconds() == 120.0 - 10.0 - 40.0 - 30.0
    assert (clock.left(), clock.before_free(), clock.until_limit()) == (110.0, 70.0, 134.0)
    assert JobClock(3600.0, free=60.0, now=time).search_seconds() == 3600.0 - 60.0 - 60.0
    time.seconds += 100.0
    assert clock.search_seconds() == 0.0
    assert JobClock(now=time).search_seconds() == float("inf")


def test_an_opening_that_leaves_no_time_for_the_search_is_told() -> None:
    time = Moved()
    clock = JobClock(BUDGET, now=time)
    time.seconds = 50.0
    assert of_slow_opening(clock, 770) == of_slow_opening(JobClock(now=time), 770) == ""
    time.seconds = 72.4
    assert "took 72 s of the budget of 100 s (770 operators)" in of_slow_opening(clock, 770)


def test_nothing_is_asked_of_the_worker_behind_the_limit(norm):
    time = Moved()
    kept, norm.clock = norm.clock, JobClock(BUDGET, now=time)
    try:
        norm.evaluate(numbered(1), Tier.quick)
        time.seconds = LATEST * BUDGET
        pid = norm.worker.process.pid
        with pytest.raises(OutOfTime, match="the budget of 100 s is used up"):
            norm.evaluate(numbered(1), Tier.quick)
        assert norm.worker.alive and norm.worker.process.pid == pid
    finally:
        norm.clock = kept


def test_what_runs_at_the_limit_is_ended_and_nothing_is_started_anew(tmp_path):
    worker = new_worker(tmp_path / "worker.log")
    with environment(worker, tmp_path) as opened:
        opened.build(numbered(1)[0])
        os.kill(worker.process.pid, signal.SIGSTOP)
        opened.clock = JobClock(0.5)
        with pytest.raises(OutOfTime):
            opened.evaluate(numbered(1), Tier.quick)
        assert not worker.alive


def test_what_runs_beside_the_job_stops_by_itself_at_a_cancel_and_at_the_limit() -> None:
    time, cancel = Moved(), threading.Event()
    clock = JobClock(BUDGET, now=time)
    stopping, other, late = (Stopping(one, clock.until_limit) for one in (threading.Event(), cancel, threading.Event()))
    assert not (stopping.is_set() or other.is_set() or late.is_set())
    stopping.set()
    cancel.set()
    assert stopping.is_set() and other.is_set() and not late.is_set()
    time.seconds = LATEST * BUDGET
    assert late.is_set() and not Stopping(threading.Event(), JobClock(now=time).until_limit).is_set()


def test_another_worker_gets_no_more_than_what_is_left_for_opening() -> None:
    time = Moved()
    clock = JobClock(BUDGET, now=time)
    assert opening_seconds(clock) == BUDGET and opening_seconds(clock, again=True) == LATEST * BUDGET
    time.seconds = 119.0
    assert opening_seconds(clock) == LEAST_SECONDS and opening_seconds(clock, again=True) == 1.0


def test_a_build_that_is_not_done_at_the_limit_is_ended(norm):
    time = Moved()
    kept, norm.clock = norm.clock, JobClock(BUDGET, now=time)
    slow = numbered(1, ("/*ENTRY*/", LONG), ("/*GLOBAL*/", MANY))[0]
    waiting = ThreadPoolExecutor(1)
    try:
        build = waiting.submit(norm.build, slow)
        assert not wait([build], 1.0).done, "its compiler runs for many seconds"
        time.seconds = LATEST * BUDGET
        with pytest.raises(OutOfTime):
            norm.evaluate([slow], Tier.quick)
        with pytest.raises(Cancelled, match="cancelled while compiling"):
            build.result(timeout=60)
    finally:
        norm.clock = kept
        waiting.shutdown()


def test_free_wins_are_left_out_where_no_time_is_left(norm):
    events: list[AnyEvent] = []
    step = FreeWinStep(norm, -1.0, events.append)
    assert step.run() and step.wins == []
    assert events == [Warned(message="changes that need no kernel are not measured: no time")]
