"""What is told of a job without a result: which check failed, where, and what to try."""

from __future__ import annotations

import msgspec
import pytest

from kernel_assistant.cli.report import report
from kernel_assistant.errors import DeviceError, MissingError, UsageError
from kernel_assistant.records import Diagnostic, JobOutcome, Mismatch, Outcome, ProgramMode, Stage, StopReason, Tier
from kernel_assistant.records.codec import decode, encode
from kernel_assistant.records.result import OptimizeResult
from kernel_assistant.session.kinds.decision import decide
from kernel_assistant.session.kinds.obstacles import NEXT_STEPS, obstacles_of, of_error
from kernel_assistant.session.kinds.outcome import best_candidate, outcome_of
from kernel_assistant.session.reporting.verdicts import verdict, why_nothing
from tests.common import results
from tests.session.episodes import QUICK, correct, episode, timing, tried, wrong

MISMATCH = Mismatch(output="out0", index=(3, 17), got=0.0, want=5.02, workload="declared", count=9, total=64)


def in_full(step, outcome, message="no"):
    """The evaluation in the full tier of a step's candidate."""
    return wrong(outcome, message, step.candidates[0].hash(), tier=Tier.full)


def end_of(trajectory, **fields):
    """The result that a job writes of an episode."""
    decision = decide(trajectory, ProgramMode.unknown, "7")
    left = {"job": "7"} if best_candidate(trajectory)[0] is None else {"job": "7", "plan.json": "p"}
    told = {"outcome": decision.outcome, "obstacles": decision.obstacles, "offer": decision.offer}
    return results.result(**told, stop_reason=trajectory.stop_reason.value, artifacts=left, **fields)


def test_a_wrong_candidate_says_where_it_is_wrong_how_many_are_and_what_to_try():
    wrong = [tried(turn, Outcome.incorrect, message="0 for 5.02", mismatch=MISMATCH) for turn in (1, 2)]
    refused = Diagnostic(message="no inline assembly", file="kernel.cpp", line=12)
    screened = tried(3, Outcome.refused, stage=Stage.screen, message="no inline assembly", diagnostics=(refused,))
    first, second = obstacles_of(episode(StopReason.finished, *wrong, screened), "7")
    assert (first.check, first.outcome, first.count, first.of) == ("verify", "incorrect", 2, 3)
    assert first.where == "out0[3, 17] of declared, 9 of 64 elements"
    assert "kernel-assistant show 7" in first.next_step and "--numerics paper" in first.next_step
    assert (second.check, second.where) == ("screen", "kernel.cpp:12")
    result = end_of(episode(StopReason.finished, *wrong, screened))
    assert result.outcome is JobOutcome.no_candidate
    assert decode(encode(result), OptimizeResult).obstacles == (first, second)
    lines = "\n".join(report(result))
    assert "verify: incorrect, 2 of 3 at out0[3, 17] of declared" in lines and "--numerics paper" in lines


@pytest.mark.parametrize("outcome", [one for one in Outcome if one is not Outcome.correct])
def test_every_failure_of_a_candidate_has_something_to_try(outcome):
    fields = {"diagnostics": (Diagnostic(message="no"),)} if outcome is Outcome.compile_error else {}
    (obstacle,) = obstacles_of(episode(StopReason.finished, tried(1, outcome, **fields)), "7")
    assert obstacle.outcome == outcome.value and obstacle.next_step and "{job}" not in obstacle.next_step
    assert outcome in NEXT_STEPS


@pytest.mark.parametrize("reason", [one for one in StopReason if one is not StopReason.cancelled])
def test_every_ending_without_a_candidate_is_explained(reason):
    unsupported = ("generator: no fft_rfft",) if reason is StopReason.unsupported else ()
    obstacles = obstacles_of(episode(reason, unsupported=unsupported, broken="the worker died of SIGKILL"), "7")
    assert obstacles and all(one.check and one.message and one.next_step for one in obstacles)
    result = end_of(episode(reason, unsupported=unsupported))
    assert any(one.message in "\n".join(report(result)) for one in result.obstacles)


@pytest.mark.parametrize(
    ("reason", "fields", "check", "message"),
    [
        (StopReason.unsupported, {"unsupported": ("generator: no fft_rfft",)}, "operators", "generator: no fft_rfft"),
        (StopReason.environment_broken, {"broken": "the worker died"}, "environment", "the worker died"),
        (StopReason.policy_broken, {"broken": "no reply"}, "policy", "no reply"),
    ],
    ids=["operators", "environment", "policy"],
)
def test_operators_and_what_broke_are_named(reason, fields, check, message):
    (obstacle,) = obstacles_of(episode(reason, **fields), "7")
    assert (obstacle.check, obstacle.message) == (check, message)


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
    right = tried(1)
    evaluations = () if full is None else (in_full(right, *full),)
    ended = episode(reason, right, in_full=evaluations)
    assert outcome_of(ended) is JobOutcome.inconclusive
    result = end_of(ended)
    words = "a correct candidate was found and not confirmed (0.777 ms, 3.52× eager in the search)"
    assert verdict(result) == f"{words}: {why}; confirm it with: kernel-assistant confirm 7"
    assert "no correct candidate" not in "\n".join(report(result))


def test_what_broke_behind_a_right_candidate_is_told_with_it():
    ended = episode(StopReason.environment_broken, tried(1), broken="the worker was lost 5 times")
    result = end_of(ended)
    assert result.outcome is JobOutcome.failed
    assert "not confirmed" in verdict(result) and "the worker was lost 5 times" in verdict(result)
    assert [one.check for one in result.obstacles] == ["environment", "confirmation"]


def test_a_candidate_that_the_full_tier_refutes_is_not_offered_for_confirmation():
    right, other = tried(1), tried(2, figures=msgspec.structs.replace(QUICK, candidate_ms=0.9))
    refuted = in_full(right, Outcome.incorrect, "0 for 5.02 at B=1")
    ended = episode(StopReason.finished, right, in_full=(refuted,))
    assert best_candidate(ended) == (None, None) and outcome_of(ended) is JobOutcome.no_candidate
    (obstacle,) = obstacles_of(ended, "7")
    assert (obstacle.check, obstacle.outcome, obstacle.message) == ("verify in full", "incorrect", "0 for 5.02 at B=1")
    result = end_of(ended)
    assert "verify in full: incorrect" in why_nothing(result, budget="budget")
    assert best_candidate(episode(StopReason.finished, right, other, in_full=(refuted,)))[0] == other.candidates[0]


def test_an_interval_that_is_too_wide_is_named_with_its_baseline():
    wide = msgspec.structs.replace(timing(1.1, 1.0, spread=0.01), speedup_vs_compile_ci=(0.94, 1.26))
    ended = episode(StopReason.finished, tried(1), best="c", final=correct(wide))
    (obstacle,) = obstacles_of(ended, "7")
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
