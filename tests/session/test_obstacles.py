"""What is told of a job without a result: which check failed, where, and what to try."""

from __future__ import annotations

import msgspec
import pytest

from kernel_assistant.cli.report import report
from kernel_assistant.errors import DeviceError, MissingError, UsageError
from kernel_assistant.records import (
    Diagnostic,
    Evaluation,
    JobOutcome,
    Mismatch,
    Outcome,
    ProgramMode,
    Stage,
    Step,
    StopReason,
    Tier,
    Timing,
    Trajectory,
)
from kernel_assistant.records.codec import decode, encode
from kernel_assistant.records.result import OptimizeResult
from kernel_assistant.session.kinds.decision import decide
from kernel_assistant.session.kinds.obstacles import NEXT_STEPS, obstacles_of, of_error
from kernel_assistant.session.kinds.outcome import best_candidate, outcome_of
from kernel_assistant.session.reporting.verdicts import verdict, why_nothing
from tests.common import results
from tests.common.results import accuracy_of
from tests.session.tiny_host import step

QUICK = Timing(candidate_ms=0.777, eager_ms=2.73, speedup_vs_eager=3.52)
MISMATCH = Mismatch(output="out0", index=(3, 17), got=0.0, want=5.02, workload="declared", count=9, total=64)


def found(turn, outcome=Outcome.correct, tier=Tier.quick, **fields):
    """A step with one candidate, and its evaluation."""
    candidate = step(turn).candidates[0]
    right = outcome is Outcome.correct
    evaluation = Evaluation(
        candidate=candidate.hash(),
        tier=tier,
        outcome=outcome,
        stage=fields.pop("stage", Stage.profile if right else Stage.verify),
        message=fields.pop("message", "ok" if right else "no"),
        accuracy=accuracy_of() if right else None,
        timing=fields.pop("timing", QUICK) if right else None,
        **fields,
    )
    return Step(turn=turn, message="", candidates=(candidate,), evaluations=(evaluation,), started=0.0, ended=1.0)


def ended(reason, *steps, **fields):
    return Trajectory(task="t", policy="generator", steps=steps, stop_reason=reason, seconds=9.0, **fields)


def in_full(one, outcome, message="no"):
    """The evaluation in the full tier of a step's candidate."""
    return found(one.turn, outcome, Tier.full, message=message).evaluations[0]


def end_of(trajectory, **fields):
    """The result that a job writes of an episode."""
    decision = decide(trajectory, ProgramMode.unknown, "7")
    left = {"job": "7"} if best_candidate(trajectory)[0] is None else {"job": "7", "plan.json": "p"}
    return results.result(
        outcome=decision.outcome,
        obstacles=decision.obstacles,
        offer=decision.offer,
        stop_reason=trajectory.stop_reason.value,
        artifacts=left,
        **fields,
    )


def test_a_wrong_candidate_says_where_it_is_wrong_how_many_are_and_what_to_try():
    wrong = [found(turn, Outcome.incorrect, message="0 for 5.02", mismatch=MISMATCH) for turn in (1, 2)]
    refused = Diagnostic(message="no inline assembly", file="kernel.cpp", line=12)
    screened = found(3, Outcome.refused, stage=Stage.screen, message="no inline assembly", diagnostics=(refused,))
    first, second = obstacles_of(ended(StopReason.finished, *wrong, screened), "7")
    assert (first.check, first.outcome, first.count, first.of) == ("verify", "incorrect", 2, 3)
    assert first.where == "out0[3, 17] of declared, 9 of 64 elements"
    assert "kernel-assistant show 7" in first.next_step and "--numerics paper" in first.next_step
    assert (second.check, second.where) == ("screen", "kernel.cpp:12")
    result = end_of(ended(StopReason.finished, *wrong, screened))
    assert result.outcome is JobOutcome.no_candidate
    assert decode(encode(result), OptimizeResult).obstacles == (first, second)
    lines = "\n".join(report(result))
    assert "verify: incorrect, 2 of 3 at out0[3, 17] of declared" in lines and "--numerics paper" in lines


@pytest.mark.parametrize("outcome", [one for one in Outcome if one is not Outcome.correct])
def test_every_failure_of_a_candidate_has_something_to_try(outcome):
    fields = {"diagnostics": (Diagnostic(message="no"),)} if outcome is Outcome.compile_error else {}
    (obstacle,) = obstacles_of(ended(StopReason.finished, found(1, outcome, **fields)), "7")
    assert obstacle.outcome == outcome.value and obstacle.next_step and "{job}" not in obstacle.next_step
    assert outcome in NEXT_STEPS


@pytest.mark.parametrize("reason", [one for one in StopReason if one is not StopReason.cancelled])
def test_every_ending_without_a_candidate_is_explained(reason):
    unsupported = ("generator: no fft_rfft",) if reason is StopReason.unsupported else ()
    obstacles = obstacles_of(ended(reason, unsupported=unsupported, broken="the worker died of SIGKILL"), "7")
    assert obstacles and all(one.check and one.message and one.next_step for one in obstacles)
    result = end_of(ended(reason, unsupported=unsupported))
    assert any(one.message in "\n".join(report(result)) for one in result.obstacles)


def test_operators_and_what_broke_are_named():
    (operators,) = obstacles_of(ended(StopReason.unsupported, unsupported=("generator: no fft_rfft",)), "7")
    assert (operators.check, operators.message) == ("operators", "generator: no fft_rfft")
    (broken,) = obstacles_of(ended(StopReason.environment_broken, broken="the worker died of SIGKILL"), "7")
    assert (broken.check, broken.message) == ("environment", "the worker died of SIGKILL")
    (policy,) = obstacles_of(ended(StopReason.policy_broken, broken="policy m ended (timeout): no reply"), "7")
    assert (policy.check, policy.message) == ("policy", "policy m ended (timeout): no reply")


@pytest.mark.parametrize(
    ("reason", "full", "why"),
    [
        (StopReason.unverified, None, "the budget ended first"),
        (StopReason.wall_time, (Outcome.crashed, "the judge was lost"), "crashed in full: the judge was lost"),
        (StopReason.turns, (Outcome.hung, "no answer for 10 s"), "hung in full: no answer for 10 s"),
        (StopReason.finished, (Outcome.inconclusive, "odd times"), "inconclusive in full: odd times"),
    ],
)
def test_a_right_candidate_that_was_not_confirmed_is_called_that_and_one_command_confirms_it(reason, full, why):
    right = found(1)
    evaluations = () if full is None else (in_full(right, *full),)
    episode = ended(reason, right, in_full=evaluations)
    assert outcome_of(episode) is JobOutcome.inconclusive
    result = end_of(episode)
    words = "a correct candidate was found and not confirmed (0.777 ms, 3.52× eager in the search)"
    assert verdict(result) == f"{words}: {why}; confirm it with: kernel-assistant confirm 7"
    assert "no correct candidate" not in "\n".join(report(result))


def test_what_broke_behind_a_right_candidate_is_told_with_it():
    episode = ended(StopReason.environment_broken, found(1), broken="the worker was lost 5 times")
    result = end_of(episode)
    assert result.outcome is JobOutcome.failed
    assert "not confirmed" in verdict(result) and "the worker was lost 5 times" in verdict(result)
    assert [one.check for one in result.obstacles] == ["environment", "confirmation"]


def test_a_candidate_that_the_full_tier_refutes_is_not_offered_for_confirmation():
    right, other = found(1), found(2, timing=msgspec.structs.replace(QUICK, candidate_ms=0.9))
    refuted = in_full(right, Outcome.incorrect, "0 for 5.02 at B=1")
    episode = ended(StopReason.finished, right, in_full=(refuted,))
    assert best_candidate(episode) == (None, None) and outcome_of(episode) is JobOutcome.no_candidate
    (obstacle,) = obstacles_of(episode, "7")
    assert (obstacle.check, obstacle.outcome, obstacle.message) == ("verify in full", "incorrect", "0 for 5.02 at B=1")
    result = end_of(episode)
    assert "verify in full: incorrect" in why_nothing(result, budget="budget")
    assert best_candidate(ended(StopReason.finished, right, other, in_full=(refuted,)))[0] == other.candidates[0]


def test_an_interval_that_is_too_wide_is_named_with_its_baseline():
    wide = Timing(
        candidate_ms=1.0,
        eager_ms=1.0,
        compile_ms=1.0,
        speedup_vs_eager=1.0,
        speedup_vs_compile=1.1,
        speedup_vs_eager_ci=(0.99, 1.01),
        speedup_vs_compile_ci=(0.94, 1.26),
    )
    right = found(1, tier=Tier.full, timing=wide)
    episode = ended(StopReason.finished, right, best=right.evaluations[0].candidate, final=right.evaluations[0])
    (obstacle,) = obstacles_of(episode, "7")
    assert (obstacle.check, obstacle.where) == ("measurement", "over torch.compile")
    assert obstacle.message.startswith("0.94 to 1.26 times as fast") and "confirm 7" in obstacle.next_step


@pytest.mark.parametrize(
    ("error", "check"),
    [
        (UsageError("forward raises", "mend it"), "module"),
        (MissingError("no GPU", "see nvidia-smi"), "machine"),
        (DeviceError("the worker was lost"), "judge"),
    ],
)
def test_an_exception_says_whose_it_is(error, check):
    obstacle = of_error(error)
    assert (obstacle.check, obstacle.message) == (check, error.cause) and obstacle.next_step
