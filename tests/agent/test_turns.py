"""The loop of an episode with parts that were written by hand: how it ends, and what its steps hold."""

from __future__ import annotations

from itertools import count

import pytest

from kernel_assistant.agent.stops import Stop
from kernel_assistant.agent.turns import UNLIMITED_SECONDS, TurnLoop
from kernel_assistant.policy.base import PolicyAction
from kernel_assistant.records import Baseline, Evaluation, Outcome, Stage, StopReason, Tier
from tests.judge.kernels import numbered

BASELINE = Baseline(eager_ms=3.0, compile_ms=None, floor_ms=1.0)


def crashed(candidate):
    return Evaluation(
        candidate=candidate.hash(), tier=Tier.quick, outcome=Outcome.crashed, stage=Stage.verify, message=""
    )


def judge(action, turn):
    for candidate in action.candidates:
        yield candidate, crashed(candidate)


@pytest.fixture
def loop(norm):
    """Makes a loop on the open environment, and the list of the views that its policy gets."""

    def made(actions, **parts):
        views, left = [], iter(actions)

        def policy(view):
            views.append(view)
            return next(left)

        known = {"judge": judge, "stop_rule": lambda: None, "baseline": lambda: BASELINE}
        return TurnLoop(task=norm, policy=policy, **(known | parts)), views

    return made


def actions(turns):
    return [PolicyAction(f"turn {number}", (candidate,)) for number, candidate in enumerate(numbered(turns), start=1)]


def test_the_policy_sees_each_step_and_finishes(loop, norm):
    run, views = loop([*actions(2), PolicyAction("done", finished=True)])
    assert run.run() is StopReason.finished
    assert [len(view.steps) for view in views] == [0, 1, 2]
    assert [(step.turn, step.message) for step in run.steps] == [(1, "turn 1"), (2, "turn 2")]
    assert all(view.graph is norm.graph and view.target == "cpu" and view.baseline is BASELINE for view in views)
    assert {view.remaining for view in views} == {UNLIMITED_SECONDS}
    assert {(step.started, step.ended) for step in run.steps} == {(0.0, 0.0)}


@pytest.mark.parametrize("part", ["policy", "judge", "stop_rule", "baseline"])
def test_any_part_may_end_it(loop, part):
    def stop(*_):
        raise Stop(StopReason.tokens)

    run, _ = loop(actions(1))
    setattr(run, part, stop)
    assert run.run() is StopReason.tokens
    assert len(run.steps) == (part in ("judge", "stop_rule"))


def test_it_goes_on_behind_earlier_steps_with_numbers_and_a_clock_of_the_caller(loop):
    before, _ = loop([*actions(1), PolicyAction("done", finished=True)])
    before.run()
    seconds = count(10.0)
    run, views = loop(
        [*actions(1), PolicyAction("done", finished=True)],
        steps=list(before.steps),
        turns=count(7),
        seconds=60.0,
        now=lambda: next(seconds),
    )
    run.run()
    assert [step.turn for step in run.steps] == [1, 7]
    assert [(len(view.steps), view.remaining) for view in views] == [(1, 50.0), (2, 48.0)]
    assert (run.steps[1].started, run.steps[1].ended) == (10.0, 11.0)
