"""Episodes in a real environment: every documented stop reason, and which candidates are confirmed at the end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from kernel_assistant.agent.budget import Budget
from kernel_assistant.agent.loop import run_episode
from kernel_assistant.environment import session
from kernel_assistant.environment.session import Environment
from kernel_assistant.events import BestImproved, CandidateEvaluated, Warned
from kernel_assistant.policy.base import EpisodeView, PolicyAction
from kernel_assistant.records import Baseline, Candidate, OpGraph, Outcome, Step, StopReason, Tier, Trajectory
from tests.judge.kernels import candidate, numbered

#: Work that changes nothing and takes hundreds of times as long as the norm itself.
SLOW = ("/*END*/", "for (volatile int n = 0; n < 20000; n = n + 1) {}")
#: Right with the declared weights only.
BAKED = ("a->w[i]", "(0.5f + i / 255.0f)")
#: Wrong, so that nothing needs to be confirmed in full where that is not the point.
WRONG = ("1e-6f", "1e-1f")
LONG = Budget(seconds=600)


class ByHand:
    """Plays turns that were written in advance. A turn may also be a function that returns the turn."""

    name = "by hand"

    def __init__(
        self, *turns: Sequence[Candidate] | Callable[[], Sequence[Candidate]], reason: str | None = None
    ) -> None:
        self._turns = list(turns)
        self._reason = reason
        self.views: list[EpisodeView] = []

    def supports(self, graph: OpGraph, target: str) -> str | None:
        return self._reason

    def step(self, view: EpisodeView) -> PolicyAction:
        self.views.append(view)
        if not self._turns:
            return PolicyAction(message="that was all", finished=True)
        turn = self._turns.pop(0)
        return PolicyAction(message=f"turn {len(self.views)}", candidates=tuple(turn() if callable(turn) else turn))


class OnOtherMemory:
    """Stands in for the environment on a device whose roofline is a given share of the measured time."""

    def __init__(self, environment: Environment, share: Callable[[Baseline], float]) -> None:
        self._environment, self._share = environment, share

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def baseline(self, *, compiled: bool) -> Baseline:
        measured = self._environment.baseline(compiled=compiled)
        return msgspec.structs.replace(measured, floor_ms=self._share(measured))


@pytest.fixture(scope="module")
def nominal():
    return False


@pytest.fixture
def play(norm, cancel):
    """Plays an episode and checks the properties that every trajectory must have."""
    seen: list[object] = []

    def run(policy, budget=LONG, environment=norm, **kwargs) -> tuple[Trajectory, list[object]]:
        cancel.clear()
        trajectory = run_episode(environment, policy, budget, emit=seen.append, cancel=cancel, **kwargs)
        assert [step.turn for step in trajectory.steps] == list(range(1, len(trajectory.steps) + 1))
        assert (trajectory.best is None) == (trajectory.final is None)
        if trajectory.final:
            assert trajectory.final.correct
            assert trajectory.final.tier is Tier.full
        return trajectory, seen

    yield run
    cancel.clear()


def evaluated(events, tier):
    return [
        event.evaluation for event in events if isinstance(event, CandidateEvaluated) and event.evaluation.tier is tier
    ]


@pytest.mark.slow
def test_finished_when_the_policy_has_nothing_more(play):
    policy = ByHand([candidate()], [candidate(WRONG)])
    trajectory, events = play(policy)
    assert trajectory.stop_reason is StopReason.finished
    assert trajectory.best == candidate().hash()
    outcomes = [evaluation.outcome for step in trajectory.steps for evaluation in step.evaluations]
    assert outcomes == [Outcome.correct, Outcome.incorrect]
    # In full once, on samples that had no part in choosing it: only these are reported.
    assert len(evaluated(events, Tier.full)) == 1
    assert trajectory.final is evaluated(events, Tier.full)[-1]
    first, second, last = policy.views
    assert (len(first.steps), len(second.steps), len(last.steps)) == (0, 1, 2)
    assert second.steps[0].evaluations[0].correct
    assert first.baseline.eager_ms > 0
    assert second.baseline.compile_ms > 0
    assert first.remaining >= second.remaining >= last.remaining
    assert second.device.target == "cpu" and second.device.threads >= 1


@pytest.mark.timed
def test_target_reached(play):
    trajectory, _ = play(ByHand([candidate()], [candidate(SLOW)]), Budget(seconds=600, target_speedup=1e-9))
    assert (trajectory.stop_reason, len(trajectory.steps)) == (StopReason.target_reached, 1)
    assert trajectory.best


def test_the_rest_of_a_turn_is_left_out_when_the_time_is_over(play):
    trajectory, _ = play(ByHand([candidate(WRONG), *numbered(4)]), Budget(seconds=0.0))
    assert (trajectory.stop_reason, len(trajectory.steps)) == (StopReason.wall_time, 1)
    assert [one.outcome for one in trajectory.steps[0].evaluations] == [Outcome.incorrect, Outcome.correct]
    assert len(trajectory.steps[0].candidates) == 2 and trajectory.final


def test_no_further_finalist_where_none_can_be_an_improvement(play):
    """Both finalists take equally long, hundreds of times as long as the reference."""
    slow = numbered(2, (SLOW[0], f"{SLOW[1]} {SLOW[0]}"))
    trajectory, events = play(ByHand(slow), Budget(seconds=600, turns=1))
    quick = evaluated(events, Tier.quick)
    assert [one.outcome for one in quick] == [Outcome.correct] * 2, [one.message for one in quick]
    assert [one.candidate for one in evaluated(events, Tier.full)] == [trajectory.best]
    confirmed = [event for event in events if isinstance(event, BestImproved) and event.confirmed]
    assert [event.candidate for event in confirmed] == [trajectory.best]


def test_turns(play):
    trajectory, _ = play(ByHand(*[[each] for each in numbered(5, WRONG)]), Budget(seconds=600, turns=2))
    assert (trajectory.stop_reason, len(trajectory.steps)) == (StopReason.turns, 2)


def test_no_progress_and_nothing_is_evaluated_twice(play):
    trajectory, events = play(ByHand(*[[candidate(WRONG), candidate(WRONG)]] * 9), Budget(seconds=600, patience=3))
    assert (trajectory.stop_reason, trajectory.best) == (StopReason.no_progress, None)
    assert [len(step.evaluations) for step in trajectory.steps] == [1, 0, 0]
    assert (len(evaluated(events, Tier.quick)), evaluated(events, Tier.full)) == (1, [])


def test_unsupported(play):
    trajectory, _ = play(ByHand([candidate()], reason="no norms"))
    assert (trajectory.stop_reason, trajectory.steps) == (StopReason.unsupported, ())
    assert trajectory.unsupported == ("by hand: no norms",)


def test_at_limit_where_the_reference_is_as_fast_as_memory(play, norm):
    """The episode ends once there is a candidate that is not slower; earlier candidates count."""
    fast = OnOtherMemory(norm, lambda measured: 0.96 * (measured.compile_ms or measured.eager_ms))
    (evaluation,) = norm.evaluate([candidate()], Tier.quick)
    earlier = _at(norm.baseline(compiled=True).compile_ms, evaluation)
    trajectory, _ = play(ByHand([candidate(WRONG)], [candidate(SLOW)]), environment=fast, resume_steps=(earlier,))
    assert (trajectory.stop_reason, len(trajectory.steps)) == (StopReason.at_limit, 2)


def test_at_limit_goes_on_for_four_turns_while_it_is_slower(play, norm):
    """This holds even if the candidate is as close to the limit as torch.compile has to be."""
    (evaluation,) = norm.evaluate([candidate()], Tier.quick)
    compiled = norm.baseline(compiled=True).compile_ms
    memory = OnOtherMemory(norm, lambda measured: 0.97 * compiled)
    policy = ByHand(*[[each] for each in numbered(5, WRONG)])
    trajectory, _ = play(policy, environment=memory, resume_steps=(_at(1.015 * compiled, evaluation),))
    assert (trajectory.stop_reason, len(trajectory.steps)) == (StopReason.at_limit, 4)


def test_at_roofline_where_the_best_is_as_fast_as_memory(play, norm):
    (evaluation,) = norm.evaluate([candidate()], Tier.quick)
    between = min(evaluation.timing.candidate_ms, norm.baseline(compiled=True).compile_ms) / 2
    # The floor lies below torch.compile's time, and the candidate's is taken as it comes.
    memory = OnOtherMemory(norm, lambda measured: between)
    trajectory, _ = play(ByHand([candidate()]), environment=memory, resume_steps=(_at(between, evaluation),))
    assert (trajectory.stop_reason, trajectory.best) == (StopReason.at_roofline, candidate().hash())


def _at(milliseconds, evaluation):
    """A step of an earlier episode that measured `milliseconds`, on the same device when it was quiet."""
    timing = msgspec.structs.replace(evaluation.timing, candidate_ms=milliseconds)
    kept = msgspec.structs.replace(evaluation, timing=timing)
    return Step(turn=1, message="earlier", candidates=(candidate(),), evaluations=(kept,), started=0.0, ended=1.0)


def test_a_policy_that_breaks_keeps_what_was_found(play):
    def broken() -> Sequence[Candidate]:
        raise ZeroDivisionError("by design")

    trajectory, events = play(ByHand([candidate(WRONG)], broken))
    assert (trajectory.stop_reason, len(trajectory.steps)) == (StopReason.policy_broken, 1)
    assert any(isinstance(event, Warned) and "ZeroDivisionError: by design" in event.message for event in events)


def test_cancelled_between_turns_keeps_the_steps(play, cancel):
    def stop() -> Sequence[Candidate]:
        cancel.set()
        return [candidate(SLOW)]

    trajectory, _ = play(ByHand([candidate()], stop))
    assert trajectory.stop_reason is StopReason.cancelled
    assert [len(step.evaluations) for step in trajectory.steps] == [1, 0]
    assert trajectory.best is None


def test_cancelled_within_a_turn_keeps_what_it_found(norm, cancel):
    """The user stops the job while the second of three candidates is being judged."""
    events: list[object] = []

    def emit(event: object) -> None:
        events.append(event)
        if len(evaluated(events, Tier.quick)) == 2:
            cancel.set()

    cancel.clear()
    trajectory = run_episode(norm, ByHand(numbered(3)), LONG, emit=emit, cancel=cancel)
    cancel.clear()
    assert trajectory.stop_reason is StopReason.cancelled
    (step,) = trajectory.steps
    assert [each.hash() for each in step.candidates] == [evaluation.candidate for evaluation in step.evaluations]
    assert len(step.evaluations) == 2


def test_a_finalist_that_fails_in_full_is_replaced_by_the_next(play):
    fast_but_wrong, right = candidate(BAKED), candidate(SLOW)
    trajectory, events = play(ByHand([fast_but_wrong, right]))
    quick = {evaluation.candidate: evaluation for evaluation in evaluated(events, Tier.quick)}
    assert quick[fast_but_wrong.hash()].correct
    assert quick[fast_but_wrong.hash()].timing.candidate_ms < quick[right.hash()].timing.candidate_ms
    full = [(evaluation.candidate, evaluation.correct) for evaluation in evaluated(events, Tier.full)]
    assert full == [(fast_but_wrong.hash(), False), (right.hash(), True)]
    assert trajectory.best == right.hash()


def test_steps_of_an_interrupted_episode_are_not_evaluated_again(play):
    earlier, events = play(ByHand([candidate(WRONG)]))
    before = len(evaluated(events, Tier.quick))
    policy = ByHand([candidate(WRONG)])
    trajectory, events = play(policy, resume_steps=earlier.steps)
    assert len(evaluated(events, Tier.quick)) == before == 1
    assert policy.views[0].steps == earlier.steps
    assert trajectory.steps[:1] == earlier.steps
    assert [len(step.evaluations) for step in trajectory.steps] == [1, 0]


def test_environment_broken_when_the_worker_does_not_come_back(play, norm, monkeypatch):
    monkeypatch.setattr(session, "MOST_RESTARTS", 0)

    def kill() -> Sequence[Candidate]:
        os.kill(norm.worker.process.pid, signal.SIGKILL)
        return [candidate(SLOW)]

    trajectory, _ = play(ByHand([candidate()], kill))
    assert trajectory.stop_reason is StopReason.environment_broken
    assert [len(step.evaluations) for step in trajectory.steps] == [1, 0]
