"""What a person is told follows from confirmed figures only."""

from __future__ import annotations

import msgspec
import pytest

from kernel_assistant.cli.report import report
from kernel_assistant.records import (
    Evaluation,
    JobOutcome,
    Outcome,
    Stage,
    StopReason,
    Tier,
    Timing,
    Trajectory,
)
from kernel_assistant.session.applied_timing import AppliedRow, conclude
from kernel_assistant.session.outcome import best_of, doubt_of, outcome_of
from kernel_assistant.session.words import of_ending, verdict
from tests.common import results
from tests.common.results import accuracy_of


def timing(compiled=2.0, eager=3.0, spread=0.05):
    def around(value):
        return None if value is None else (value * (1 - spread), value * (1 + spread))

    return Timing(
        candidate_ms=1.0,
        eager_ms=eager,
        compile_ms=compiled,
        speedup_vs_eager=eager,
        speedup_vs_compile=compiled,
        speedup_vs_eager_ci=around(eager),
        speedup_vs_compile_ci=around(compiled),
    )


def evaluation(figures):
    accuracy = accuracy_of(error=1e-6, reference_error=1e-6, relative_error=1e-7, inputs_tried=9, shapes_tried=3)
    return Evaluation(
        candidate="c",
        tier=Tier.full,
        outcome=Outcome.correct,
        stage=Stage.profile,
        message="ok",
        accuracy=accuracy,
        timing=figures,
        precision="f32",
    )


def trajectory(reason, figures=None, best=None):
    final = None if figures is None else evaluation(figures)
    return Trajectory(
        task="t",
        policy="p",
        steps=(),
        stop_reason=reason,
        seconds=1.0,
        best=best or ("c" if final else None),
        final=final,
    )


@pytest.mark.parametrize(
    ("reason", "figures", "wanted"),
    [
        (StopReason.finished, timing(), JobOutcome.improved),
        (StopReason.wall_time, timing(), JobOutcome.improved),
        (StopReason.policy_broken, timing(), JobOutcome.improved),
        (StopReason.finished, timing(compiled=1.01), JobOutcome.no_measurable_gain),
        (StopReason.finished, timing(compiled=1.04), JobOutcome.no_measurable_gain),
        (StopReason.finished, timing(eager=0.9), JobOutcome.no_measurable_gain),
        (StopReason.finished, timing(compiled=None), JobOutcome.improved),
        (StopReason.cancelled, timing(), JobOutcome.cancelled),
        (StopReason.at_limit, None, JobOutcome.at_limit),
        (StopReason.unsupported, None, JobOutcome.no_candidate),
        (StopReason.turns, None, JobOutcome.no_candidate),
        (StopReason.environment_broken, None, JobOutcome.failed),
        (StopReason.policy_broken, None, JobOutcome.failed),
    ],
)
def test_outcomes(reason, figures, wanted):
    assert outcome_of(trajectory(reason, figures)) is wanted


def test_best_carries_the_confirmed_figures():
    best = best_of(evaluation(timing()), "p", ("a",))
    assert (best.speedup_vs_compile, best.error_vs_fp64, best.precision) == (2.0, 1e-6, "f32")
    assert best_of(None, "p", ()) is None


def result(outcome, stop="finished"):
    best = best_of(evaluation(timing()), "p", ()) if outcome is JobOutcome.improved else None
    return results.result(outcome=outcome, best=best, stop_reason=stop, artifacts={"job": "7"})


@pytest.mark.parametrize(
    ("outcome", "figures", "words"),
    [
        (JobOutcome.improved, timing(), "measurably faster than torch.compile and eager"),
        (JobOutcome.improved, timing(compiled=None), "torch.compile could not be measured"),
        (JobOutcome.no_measurable_gain, timing(compiled=1.01), "not measurably faster than torch.compile"),
        (JobOutcome.no_measurable_gain, timing(compiled=0.5), "slower than torch.compile"),
        (JobOutcome.no_measurable_gain, timing(eager=0.5), "slower than eager"),
        (JobOutcome.no_measurable_gain, timing(eager=1.01), "not measurably faster than eager"),
        (JobOutcome.no_measurable_gain, None, "no gain was confirmed"),
        (JobOutcome.at_limit, None, "already at the limit"),
        (JobOutcome.no_candidate, None, "no correct candidate"),
        (JobOutcome.cancelled, None, "cancelled"),
        (JobOutcome.failed, None, "failed"),
    ],
)
def test_words_claim_no_more_than_was_measured(outcome, figures, words):
    assert words in verdict(result(outcome), figures)
    assert all(isinstance(line, str) for line in report(result(outcome)))


def test_what_was_never_measured_in_full_is_not_called_slow():
    measured = msgspec.structs.replace(result(JobOutcome.improved), outcome=JobOutcome.no_measurable_gain)
    assert doubt_of(result(JobOutcome.improved)) == ""
    assert "measured in full, and no gain was confirmed" in doubt_of(measured)
    for outcome in (JobOutcome.cancelled, JobOutcome.inconclusive):
        words = outcome.value.replace("_", " ")
        assert f"ended ({words}) before its best candidate was measured in full" in doubt_of(result(outcome))


@pytest.mark.parametrize(("count", "words"), [(0, "0 candidates in"), (1, "1 candidate in"), (2, "2 candidates in")])
def test_one_is_counted_as_one(count, words):
    assert words in of_ending(results.result(outcome=JobOutcome.no_candidate, evaluations=count))


def test_only_an_improvement_is_offered_for_applying():
    assert any("kernel-assistant apply 7" in line for line in report(result(JobOutcome.improved)))
    assert not any("apply 7" in line for line in report(result(JobOutcome.no_measurable_gain)))


def row(name="alone", elements=1000, speedup=2.0, equal=True):
    return AppliedRow(
        name=name,
        dims={"B": elements},
        elements=elements,
        original_ms=speedup,
        applied_ms=1.0,
        speedup=speedup,
        speedup_ci=(speedup * 0.97, speedup * 1.03),
        equal=equal,
    )


def test_the_guard_sends_losing_sizes_and_compiled_parents_to_the_original():
    clean = conclude((row(), row(elements=10), row("compiled parent")))
    assert (clean.worth, clean.min_elements, clean.compiled_parent) == (True, 0, "kernel")
    mixed = conclude(
        (row(), row(elements=10, speedup=0.5), row(elements=100, speedup=0.9), row("compiled parent", 1000, 0.5))
    )
    assert (mixed.worth, mixed.min_elements, mixed.compiled_parent) == (True, 101, "original")
    assert "below 101 elements and inside a compiled parent the original runs" in mixed.summary()
    # Where the declared size gained nothing, nothing else was looked at.
    assert conclude((row(speedup=0.9),)).compiled_parent == "original"


@pytest.mark.parametrize(
    "rows",
    [(row(speedup=1.01),), (row(speedup=0.5),), (row(), row(elements=5000, speedup=0.5)), (row(equal=False),)],
)
def test_a_gain_that_the_guard_eats_is_none(rows):
    assert not conclude(rows).worth
