"""Tests that a job keeps to its budget, on a clock that evaluations move, and says so if it has no result yet."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from kernel_assistant.agent.budget import Budget
from kernel_assistant.agent.loop import NOT_COMPARED, run_episode
from kernel_assistant.environment.job_clock import LATEST, JobClock, Stopping
from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.stage_messages import LEAST_SECONDS, of_slow_opening, opening_seconds
from kernel_assistant.errors import Cancelled, OutOfTime
from kernel_assistant.events import AnyEvent, Warned
from kernel_assistant.records import Candidate, Evaluation, StopReason, Tier
from kernel_assistant.session.kinds.free_wins import FreeWinStep
from tests.agent.models import correct
from tests.agent.test_loop import ByHand
from tests.common.clocks import Moved
from tests.judge.kernels import environment, new_worker, numbered

BUDGET = 100.0
#: Ten million statements, which take any compiler many seconds.
MANY = "".join(f"#define M{n + 1} M{n} M{n} M{n} M{n} M{n} M{n} M{n} M{n} M{n} M{n}\n" for n in range(7))
MANY = f"#define M0 n = n * 3 + 1;\n{MANY}"
LONG = "volatile int n = 0; M7\n"


class Slow:
    """Stands in for the environment of a large module: each evaluation moves the clock by its duration and ends at the
    limit, `compiled` is when torch.compile is ready. All candidates get the same time, which is that of the baselines.
    """

    def __init__(
        self, environment: Environment, clock: JobClock, time: Moved, quick: float, full: list[float], compiled: float
    ) -> None:
        self._environment, self._clock, self._time = environment, clock, time
        self._quick, self._full, self._compiled_after = quick, [*full], compiled

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def wait_for_compile(self, seconds: float) -> bool:
        self._time.seconds += min(seconds, max(self._compiled_after - self._time.seconds, 0.0))
        return self._time.seconds >= self._compiled_after

    def iterate(self, candidates: Sequence[Candidate], tier: Tier) -> Iterator[Evaluation]:
        for candidate in candidates:
            self._pass(self._quick)
            yield self._alike(candidate, tier, self._quick)

    def confirm(self, candidate: Candidate, *, looks: int = 1, until: float = 0.0) -> Evaluation:
        self._pass(self._full.pop(0))
        return self._alike(candidate, Tier.full)

    def _alike(self, candidate: Candidate, tier: Tier, seconds: float = 0.0) -> Evaluation:
        return correct(candidate.hash(), tier, seconds=seconds, compiled=(0.9, 1.1), eager=(0.9, 1.1))

    def _pass(self, seconds: float) -> None:
        self._time.seconds += min(seconds, max(self._clock.until_limit(), 0.0))
        self._clock.check()


@pytest.fixture
def play(norm, cancel):
    """A function: the turns, and the seconds that evaluations take → the trajectory, its events and the time."""

    def run(turns, quick, full, *, opening=0.0, compiled_after=0.0, **limits):
        time = Moved()
        clock = JobClock(BUDGET, now=time)
        time.seconds += opening
        slow = Slow(norm, clock, time, quick, full, compiled_after)
        budget, events = Budget(seconds=clock.search_seconds(), **limits), []
        trajectory = run_episode(slow, ByHand(*turns), budget, emit=events.append, cancel=cancel, clock=clock)
        return trajectory, events, time.seconds

    return run


@pytest.fixture
def time(norm):
    """The time of the clock that the open environment has in this test."""
    kept, moved = norm.clock, Moved()
    norm.clock = JobClock(BUDGET, now=moved)
    yield moved
    norm.clock = kept


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
def test_a_job_ends_within_its_budget_and_a_fifth(play, opening, quick, full, reason, confirmed):
    trajectory, _, ended = play([[each] for each in numbered(9)], quick, full, opening=opening)
    assert ended <= max(LATEST * BUDGET, opening)
    assert (trajectory.stop_reason, trajectory.best is not None) == (reason, confirmed)
    assert all(step.ended <= LATEST * BUDGET for step in trajectory.steps)


@pytest.mark.parametrize(
    ("compiled_after", "full", "evaluations", "told"),
    [(4.0, [10.0], 1, False), (50.0, [10.0, 9.0], 2, False), (50.0, [10.0, 90.0], 1, False), (115.0, [10.0], 1, True)],
)
def test_a_result_is_confirmed_before_torch_compile_is_ready(play, compiled_after, full, evaluations, told):
    """Ready while the search runs, behind the first full evaluation, with too little time for another, and too late."""
    trajectory, events, _ = play([numbered(1)], 5.0, full, compiled_after=compiled_after)
    assert trajectory.best is not None and trajectory.final == trajectory.in_full[-1]
    assert len(trajectory.in_full) == evaluations
    assert (Warned(message=NOT_COMPARED) in events) == told


def test_the_search_leaves_time_for_a_slow_confirmation(play):
    """A full evaluation takes eight times as long as the longest of the search, and may have half of the budget."""
    trajectory, *_ = play([[each] for each in numbered(40)], 6.0, [50.0], patience=40)
    assert trajectory.best is not None and len(trajectory.steps) == 9


def test_a_turn_ends_where_the_time_for_confirming_begins(play):
    trajectory, *_ = play([numbered(40)], 6.0, [50.0])
    (step,) = trajectory.steps
    assert trajectory.best is not None and len(step.evaluations) == 9


def test_the_budget_is_shared_out() -> None:
    """Opening gets its time first. The search gets what is not reserved for the full tier and the free wins."""
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


def test_nothing_is_asked_of_the_worker_behind_the_limit(norm, time):
    norm.evaluate(numbered(1), Tier.quick)
    time.seconds = LATEST * BUDGET
    pid = norm.worker.process.pid
    with pytest.raises(OutOfTime, match="the budget of 100 s is used up"):
        norm.evaluate(numbered(1), Tier.quick)
    assert norm.worker.alive and norm.worker.process.pid == pid


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


def test_a_build_that_is_not_done_at_the_limit_is_ended(norm, time):
    (slow,) = numbered(1, ("/*ENTRY*/", LONG), ("/*GLOBAL*/", MANY))
    with ThreadPoolExecutor(1) as waiting:
        build = waiting.submit(norm.build, slow)
        assert not wait([build], 1.0).done, "its compiler runs for many seconds"
        time.seconds = LATEST * BUDGET
        with pytest.raises(OutOfTime):
            norm.evaluate([slow], Tier.quick)
        with pytest.raises(Cancelled, match="cancelled while compiling"):
            build.result(timeout=60)


def test_free_wins_are_left_out_where_no_time_is_left(norm):
    events: list[AnyEvent] = []
    step = FreeWinStep(norm, -1.0, events.append)
    assert step.run() and step.wins == []
    assert events == [Warned(message="changes that need no kernel are not measured: no time")]
