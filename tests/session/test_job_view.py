"""The view that every front end has of a job, from real event logs and from single events."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kernel_assistant.events import (
    BaselineMeasured,
    BestImproved,
    FreeWinMeasured,
    JobFailed,
    JobFinished,
    JobQueued,
    JobStarted,
    ModelReplied,
    Progress,
    Warned,
    decode_event,
    encode_event,
)
from kernel_assistant.records import FreeWin, JobOutcome, Spending, Tier
from kernel_assistant.session.reporting.job_view import JobView, fold, unseen
from kernel_assistant.store import JobState
from tests.common import results
from tests.tui.parts.events import GENERATOR, MODEL, events_of, right, wrong

BASELINE = BaselineMeasured(eager_ms=3.0, compile_ms=None, floor_ms=0.1)
BEST = BestImproved(candidate="a", schedule="rows", candidate_ms=1.0, speedup_vs_eager=3.0, speedup_vs_compile=None)


def searching(begun, *, phase="search"):
    return Progress(phase=phase, message=phase, time=begun)


@pytest.mark.parametrize("log", [GENERATOR, MODEL], ids=["generator", "model"])
def test_a_log_at_once_gives_the_view_of_its_events_one_by_one(log):
    events = events_of(log)
    single = JobView(job="1")
    for event in events:
        single = fold(single, event)
    assert single == fold(JobView(job="1"), *events)
    assert (single.state, single.result, single.seq) == (JobState.done, events[-1].result, len(events))
    assert (single.began, single.now) == (events[0].time, events[-1].time)
    assert len(single.judged) == single.result.evaluations and single.percent_done(120.0) == 100
    assert single.baseline is not None and single.best is not None


def test_a_second_attach_changes_nothing():
    events = events_of(MODEL)
    view = fold(JobView(job="1"), *events[:20])
    assert fold(view, *events[:20]) is view
    assert unseen(view, events[10:22]) == events[20:22]
    assert fold(view, *events[10:]) == fold(JobView(job="1"), *events)


def test_an_earlier_view_stays_as_it_was():
    early = fold(JobView(), right("a", 1, 1.0))
    late = fold(early, right("b", 1, 1.0), wrong("a", 2, tier=Tier.full))
    assert (early.counts, late.counts) == ("1 tried, 1 correct", "2 tried, 1 correct")


def test_the_newest_event_of_some_classes():
    view = fold(JobView(), searching(1.0), Warned(message="load"), BASELINE, searching(2.0, phase="confirm"))
    assert view.newest(Progress, Warned) == searching(2.0, phase="confirm")
    assert view.newest(Warned, BaselineMeasured) == BASELINE and view.newest(JobFailed) is None


def test_states():
    cancelled, nothing = (
        JobFinished(result=results.result(outcome=outcome, best=None))
        for outcome in (JobOutcome.cancelled, JobOutcome.no_candidate)
    )
    view = fold(JobView(), JobQueued(task="t", target="cpu"))
    assert view.state is JobState.queued and view.ends == 0.0
    view = fold(view, JobStarted(device="cpu:0", budget=20.0, time=100.0))
    assert view.state is JobState.running and view.ends == 120.0
    assert fold(view, cancelled).state is JobState.cancelled
    assert fold(view, nothing).state is JobState.done
    failed = fold(view, JobFailed(cause="no compiler", next_step="install one", exit_code=3))
    assert failed.state is JobState.failed and failed.failure is not None and failed.result is None


def test_the_share_of_a_job_never_falls():
    view = fold(JobView(), JobStarted(device="cpu:0", time=1.0), searching(2.0, phase="open"))
    assert view.percent_done(100.0) == 2
    percents = []
    for event in (
        searching(1000.0),
        Warned(message="a new baseline", time=1050.0),
        searching(1049.0, phase="baseline"),  # the clock was set back
        searching(9000.0),
        searching(9001.0, phase="confirm"),
        searching(9002.0, phase="open"),
        searching(9003.0, phase="unknown"),
    ):
        view = fold(view, event)
        percents.append(view.percent_done(100.0))
    assert percents == [15, 47, 47, 79, 80, 80, 80]


def test_the_best_candidate_keeps_the_baseline_it_was_compared_with():
    compiled = replace(BASELINE, compile_ms=2.0)
    view = fold(JobView(), BASELINE, BEST, compiled)
    assert (view.best, view.best_baseline, view.baseline) == (BEST, BASELINE, compiled)
    assert fold(view, replace(BEST, confirmed=True)).best_baseline == compiled


def test_free_wins_and_conversations_are_collected():
    wins = [FreeWin(name=name, write="x", note="not checked") for name in ("tf32", "compile")]
    assert fold(JobView(), *(FreeWinMeasured(win=win) for win in wins)).free_wins == tuple(wins)
    assert fold(JobView(), *events_of(MODEL)).conversations == 8


def test_what_models_have_cost_is_the_newest_sum():
    """Replies of several conversations may come out of order; older logs say nothing of it."""
    said = ModelReplied(conversation=1, turn=1, role="assistant", text="")
    one, two = (replace(said, spent=Spending(requests=n, tokens_in=100 * n)) for n in (1, 2))
    view = fold(JobView(), two, one, said)
    assert view.spent == two.spent and fold(JobView(), said).spent == Spending()
    assert decode_event(encode_event(two)) == two
    older = b'{"type":"model_said","conversation":1,"turn":1,"role":"assistant","text":""}'
    assert decode_event(older) == said
