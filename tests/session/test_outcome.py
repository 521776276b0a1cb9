"""The messages to users follow from confirmed figures only."""

from __future__ import annotations

import msgspec
import pytest

from kernel_assistant.cli.report import report
from kernel_assistant.mcp.jobs import brief
from kernel_assistant.records import JobOutcome, Offer, OptimizeResult, Outcome, ProgramMode, StopReason
from kernel_assistant.records.codec import from_builtins, to_builtins
from kernel_assistant.records.free_win import over_change
from kernel_assistant.records.offer import OVER_COMPILE, OVER_EAGER
from kernel_assistant.session.kinds.applied_timing import AppliedRow, conclude
from kernel_assistant.session.kinds.decision import beside_free_wins, decide, in_file
from kernel_assistant.session.kinds.obstacles import why_none
from kernel_assistant.session.kinds.outcome import (
    best_of,
    doubt_of,
    in_file_offer,
    is_unconfirmed,
    measured_offer,
    outcome_of,
)
from kernel_assistant.session.reporting.class_state import figure
from kernel_assistant.session.reporting.report import facts
from kernel_assistant.session.reporting.verdicts import (
    apply_title,
    in_float32,
    of_program,
    outcome_with_figure,
    verdict,
    verdicts,
)
from kernel_assistant.session.reporting.words import of_accuracy, of_ending, of_error
from kernel_assistant_lsp.jobs.view import summary
from tests.common import results
from tests.common.results import accuracy_of
from tests.session.episodes import correct, episode, timing, win, wrong
from tests.session.tiny_host import step


def trajectory(reason, figures=None):
    final = None if figures is None else correct(figures)
    return episode(reason, policy="p", best=final and "c", final=final)


@pytest.mark.parametrize(
    ("reason", "figures", "wanted"),
    [
        (StopReason.finished, timing(), JobOutcome.improved),
        (StopReason.wall_time, timing(), JobOutcome.improved),
        (StopReason.policy_broken, timing(), JobOutcome.improved),
        (StopReason.finished, timing(compiled=1.01, spread=0.005), JobOutcome.improved),
        (StopReason.finished, timing(compiled=0.98), JobOutcome.improved),
        (StopReason.finished, timing(compiled=0.9), JobOutcome.no_measurable_gain),
        (StopReason.finished, timing(compiled=1.01, eager=1.0, spread=0.005), JobOutcome.no_measurable_gain),
        (StopReason.finished, timing(compiled=1.01, eager=1.0), JobOutcome.inconclusive),
        (StopReason.finished, timing(compiled=1.04, eager=1.0), JobOutcome.inconclusive),
        (StopReason.finished, timing(eager=0.9), JobOutcome.no_measurable_gain),
        (StopReason.finished, timing(compiled=1.04, eager=0.9), JobOutcome.no_measurable_gain),
        (StopReason.finished, timing(compiled=None), JobOutcome.improved),
        (StopReason.cancelled, timing(), JobOutcome.cancelled),
        (StopReason.at_limit, None, JobOutcome.at_limit),
        (StopReason.at_limit, timing(compiled=1.0, eager=1.0), JobOutcome.at_limit),
        (StopReason.at_limit, timing(compiled=1.0), JobOutcome.improved),
        (StopReason.unsupported, None, JobOutcome.no_candidate),
        (StopReason.turns, None, JobOutcome.no_candidate),
        (StopReason.environment_broken, None, JobOutcome.failed),
        (StopReason.policy_broken, None, JobOutcome.failed),
    ],
)
def test_outcomes(reason, figures, wanted):
    assert outcome_of(trajectory(reason, figures)) is wanted


def test_best_carries_the_confirmed_figures():
    best = best_of(correct(timing()), "p", ("a",))
    assert (best.speedup_vs_compile, best.error_vs_fp64, best.precision) == (2.0, 1e-6, "f32")
    assert best_of(None, "p", ()) is None


def judged(outcome, figures, **fields):
    """The result of a candidate that was measured in full."""
    best = best_of(correct(figures), "p", ())
    fields = {"vs_eager": figures.vs_eager, "vs_compile": figures.vs_compile, "artifacts": {"job": "7"}, **fields}
    return results.result(outcome=outcome, best=best, **fields)


#: A gain over eager that is none over torch.compile, one over torch.compile of which eager's interval touches 1, and
#: a candidate that may be anything.
EAGER_ALONE = timing(compiled=1.0, eager=1.87, spread=0.01)
SLOWER = timing(compiled=0.5, eager=1.87, spread=0.01)
TOUCHES = msgspec.structs.replace(
    timing(compiled=2.04, eager=1.82), speedup_vs_compile_ci=(1.89, 2.23), speedup_vs_eager_ci=(0.97, 3.4)
)
NEITHER = timing(compiled=1.0, eager=1.0, spread=0.01)
EITHER = timing(compiled=1.1, eager=1.05, spread=0.15)


def result(outcome, figures=None, stop="finished"):
    figures = timing() if outcome is JobOutcome.improved and figures is None else figures
    best = None if figures is None else best_of(correct(figures), "p", ())
    return results.result(outcome=outcome, best=best, stop_reason=stop, artifacts={"job": "7"})


@pytest.mark.parametrize(
    ("outcome", "figures", "words"),
    [
        (JobOutcome.improved, timing(), "measurably faster than torch.compile and eager"),
        (JobOutcome.improved, timing(compiled=None), "torch.compile could not be measured"),
        (JobOutcome.improved, TOUCHES, "faster than torch.compile; over eager not clear, 1.82× (0.97–3.40)"),
        (JobOutcome.improved, EAGER_ALONE, "faster than eager; over torch.compile no gain, 1.00× (0.99–1.01)"),
        (JobOutcome.no_measurable_gain, NEITHER, "no measurable gain over torch.compile and eager"),
        (JobOutcome.no_measurable_gain, timing(compiled=0.5), "slower than torch.compile; 3.00 times as fast as eager"),
        (JobOutcome.no_measurable_gain, timing(eager=0.5), "slower than eager"),
        (JobOutcome.no_measurable_gain, None, "no gain was confirmed"),
        (JobOutcome.no_measurable_gain, timing(), "faster by itself, but not in the edited file"),
        (JobOutcome.at_limit, None, "already at the limit"),
        (JobOutcome.no_candidate, None, "no correct candidate"),
        (JobOutcome.cancelled, None, "cancelled"),
        (JobOutcome.failed, None, "failed"),
    ],
)
def test_words_claim_no_more_than_was_measured(outcome, figures, words):
    assert words in verdict(result(outcome, figures))
    lines = "\n".join(report(result(outcome, figures)))
    assert ("kernel-assistant apply 7" in lines) == (outcome is JobOutcome.improved)


def test_what_was_never_measured_in_full_is_not_called_slow():
    measured = msgspec.structs.replace(result(JobOutcome.improved), outcome=JobOutcome.no_measurable_gain)
    assert doubt_of(result(JobOutcome.improved)) == ""
    assert "measured in full, and no gain was confirmed" in doubt_of(measured)
    for outcome in (JobOutcome.cancelled, JobOutcome.inconclusive):
        words = outcome.value.replace("_", " ")
        assert f"ended ({words}) before its best candidate was measured in full" in doubt_of(result(outcome))


def test_what_is_not_clear_says_what_is_known_and_what_measures_again():
    told = judged(JobOutcome.inconclusive, EITHER, artifacts={"job": "7", "plan.json": "p"})
    assert outcome_of(trajectory(StopReason.finished, EITHER)) is JobOutcome.inconclusive
    words = verdict(told)
    assert words.startswith("inconclusive: 0.94 to 1.26 times as fast as torch.compile, which allows for a gain and")
    assert any(line.split() == ["measure", "in", "full", "kernel-assistant", "confirm", "7"] for line in report(told))
    assert is_unconfirmed(told) and "it is not clear whether it gains anything" in doubt_of(told)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (ProgramMode.eager, "(as a scan saw it): a gain over what you run; torch.compile alone gives more"),
        (ProgramMode.unknown, "a gain where it runs the class without torch.compile; torch.compile alone gives more"),
    ],
)
def test_both_verdicts_are_told_and_a_gain_over_what_the_user_runs_can_be_applied(program, words):
    none = JobOutcome.no_measurable_gain
    assert outcome_of(trajectory(StopReason.finished, SLOWER), program) is none
    offer, over = measured_offer(correct(SLOWER), program)
    assert (offer, over) == (Offer.possible, OVER_EAGER)
    told = judged(none, SLOWER, program=program, offer=offer, gain_over=over)
    assert told.applicable and doubt_of(told) == "" and words in of_program(told)
    assert verdict(told) == "slower than torch.compile; 1.87 times as fast as eager"
    assert apply_title(offer, over) == "Apply (torch.compile alone gives more)"
    lines = "\n".join(report(told))
    assert "a gain, 1.87× (1.85–1.89)" in lines and "slower, 0.50× (0.49–0.51)" in lines
    assert words in lines and "kernel-assistant apply 7" in lines


def test_what_is_as_fast_as_torch_compile_and_faster_than_eager_is_recommended():
    for program in (ProgramMode.eager, ProgramMode.unknown):
        assert outcome_of(trajectory(StopReason.finished, EAGER_ALONE), program) is JobOutcome.improved
        told = judged(JobOutcome.improved, EAGER_ALONE, program=program, offer=Offer.recommended, gain_over=OVER_EAGER)
        assert of_program(told).endswith("no gain over torch.compile was confirmed")
        assert apply_title(told.offered, told.gain_over) == "Apply"
        assert figure(told) == "1.9× vs eager, no gain vs torch.compile"
        assert outcome_with_figure(told) == "improved, 1.87× eager"


def test_a_gain_over_eager_is_none_where_the_program_compiles():
    assert measured_offer(correct(EAGER_ALONE), ProgramMode.compiled) == (Offer.none, "")
    assert outcome_of(trajectory(StopReason.finished, EAGER_ALONE), ProgramMode.compiled) is (
        JobOutcome.no_measurable_gain
    )
    told = judged(JobOutcome.no_measurable_gain, EAGER_ALONE, program=ProgramMode.compiled)
    assert not told.applicable
    assert doubt_of(told) == "it gains over eager PyTorch alone, and your program runs the class inside torch.compile"


def test_an_interval_of_eager_that_touches_1_takes_no_gain_over_torch_compile_away():
    for program in (ProgramMode.unknown, ProgramMode.eager, ProgramMode.compiled):
        assert measured_offer(correct(TOUCHES), program) == (Offer.recommended, OVER_COMPILE)
    told = judged(JobOutcome.improved, TOUCHES, offer=Offer.recommended, gain_over=OVER_COMPILE)
    assert told.applicable and figure(told) == "2.0× vs torch.compile"
    assert from_builtins(to_builtins(told), OptimizeResult).best.speedup_vs_eager_ci == (0.97, 3.4)
    assert any("over eager" in line and "not clear, 1.82× (0.97–3.40)" in line for line in report(told))


@pytest.mark.parametrize(
    ("speedup", "offer", "outcome", "words"),
    [
        (1.5, Offer.recommended, JobOutcome.improved, "measurably faster than torch.compile(mode="),
        (2.0, Offer.recommended, JobOutcome.improved, "measurably faster than torch.compile and eager; over torch."),
        (3.0, Offer.possible, JobOutcome.no_measurable_gain, "slower than torch.compile(mode="),
    ],
)
def test_the_fastest_mode_of_torch_compile_is_a_baseline_once_it_was_timed(speedup, offer, outcome, words):
    figures, wins = timing(spread=0.01), (win("max_autotune", 1.2), win("cuda_graphs", speedup))
    before = decide(trajectory(StopReason.finished, figures), ProgramMode.unknown, "7")
    after = beside_free_wins(before, correct(figures), wins, ProgramMode.unknown)
    assert (before.offer, after.offer, after.outcome) == (Offer.recommended, offer, outcome)
    told = judged(after.outcome, figures, offer=after.offer, gain_over=after.gain_over, free_wins=wins)
    assert verdict(told).startswith(words) and "reduce-overhead" in verdict(told)
    assert told.headline[0] == 'torch.compile(mode="reduce-overhead")'
    assert told.headline[1] == pytest.approx(2.0 / speedup)


def test_what_a_mode_gains_in_its_own_series_widens_the_interval_of_the_comparison():
    speedup, (low, high) = over_change(2.0, (1.9, 2.1), win("max_autotune", 1.6, 0.25))
    assert (speedup, low, high) == pytest.approx((1.25, 1.9 / 2.0, 2.1 / 1.2))
    assert over_change(None, None, win("max_autotune", 1.6)) == (None, None)


def test_a_cancel_after_the_gain_was_confirmed_takes_nothing_away():
    told = judged(JobOutcome.cancelled, timing(), gain_over=OVER_COMPILE)
    assert told.applicable and doubt_of(told) == ""
    before = judged(JobOutcome.cancelled, timing(), artifacts={"job": "7", "plan.json": "p"})
    assert "cancelled before the edited file was timed" in doubt_of(before) and is_unconfirmed(before)


def test_a_gain_in_the_file_that_is_not_clear_is_not_called_none():
    unclear, none = conclude((row(speedup=1.01),)), conclude((row(speedup=0.5),))
    assert in_file_offer(unclear) is Offer.unclear and "it is not clear" in unclear.shortfall
    assert in_file_offer(none) is Offer.none and "gain nothing" in none.shortfall
    assert in_file_offer(conclude((row(equal=False),))) is Offer.none


@pytest.mark.parametrize(
    ("inside", "worth"), [(2.0, True), (1.01, False), (0.5, False), (None, False)], ids=["gain", "none", "loss", "-"]
)
def test_in_the_file_the_same_rule_holds_for_calls_as_they_are_and_inside_a_compiled_parent(inside, worth):
    wide = msgspec.structs.replace(row(speedup=1.4), speedup_ci=(0.95, 1.9))
    rows = (wide,) if inside is None else (wide, row("compiled parent", speedup=inside))
    assert conclude(rows).worth is worth


def test_what_the_file_leaves_of_an_offer_is_told_with_what_to_try():
    start = decide(trajectory(StopReason.finished, timing()), ProgramMode.unknown, "7")
    assert (start.outcome, start.offer, start.obstacles) == (JobOutcome.improved, Offer.recommended, ())
    assert in_file(start, conclude((row(),)), "7") is start
    for speedup, outcome in ((1.01, JobOutcome.inconclusive), (0.5, JobOutcome.no_measurable_gain)):
        end = in_file(start, conclude((row(speedup=speedup),)), "7")
        assert (end.outcome, end.gain_over, end.obstacles[0].check) == (outcome, "", "edited file")
        assert end.obstacles[0].next_step
    possible = decide(trajectory(StopReason.finished, SLOWER), ProgramMode.unknown, "7")
    assert in_file(possible, conclude((row(speedup=0.5),)), "7").outcome is JobOutcome.no_measurable_gain


def test_older_results_still_load_and_say_no_verdict():
    document = to_builtins(judged(JobOutcome.improved, timing()))
    for name in ("vs_eager", "vs_compile", "program", "gain_over"):
        del document[name]
    del document["best"]["speedup_vs_eager_ci"]
    old = from_builtins(document, OptimizeResult)
    assert old.applicable and verdicts(old) == [] and doubt_of(old) == ""


@pytest.mark.parametrize(("count", "words"), [(0, "0 candidates in"), (1, "1 candidate in"), (2, "2 candidates in")])
def test_one_is_counted_as_one(count, words):
    assert words in of_ending(results.result(outcome=JobOutcome.no_candidate, evaluations=count))


@pytest.mark.parametrize(("speedup", "needless"), [(4.0, True), (1.5, False)])
def test_a_kernel_is_no_gain_where_float32_is_as_fast_without_one(speedup, needless):
    plain = win("float32", speedup)
    told = results.result(best=results.best(), outcome=JobOutcome.no_measurable_gain, free_wins=(plain,))
    assert (in_float32(told) is plain) == needless
    assert ("the module in float32 is at least as fast" in verdict(told)) == needless
    assert in_float32(results.result(free_wins=(plain,))) is None


def test_why_there_is_no_candidate_is_said():
    unwritten = msgspec.structs.replace(trajectory(StopReason.unsupported), unsupported=("generator: no fft_rfft",))
    assert why_none(unwritten) == "generator: no fft_rfft"
    told = results.result(why=why_none(unwritten))
    assert ("why", told.why) in facts(told, None)
    assert why_none(trajectory(StopReason.finished, timing())) == ""
    assert why_none(trajectory(StopReason.at_limit)) == ""


OVER = {"stop_reason": "wall_time"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"why": "generator: no fft_rfft"}, "generator: no fft_rfft"),
        ({**OVER, "evaluations": 0}, "the budget ended before one was judged; continue with a longer"),
        ({**OVER, "evaluations": 3}, "none was correct; continue with a longer"),
        ({"stop_reason": "unsupported", "why": "generator: no gru"}, "generator: no gru"),
        ({"stop_reason": "unsupported"}, "no policy here can write this module's operators"),
        ({"stop_reason": "turns", "evaluations": 3}, "none was correct"),
    ],
)
def test_editors_and_agents_hear_why_there_is_no_candidate(fields, reason):
    told = results.result(**fields)
    longer = reason.endswith("longer")
    assert summary(told) == f"no candidate: {reason}" + " budget" * longer
    assert brief(told, "7")["why"] == reason + " budget_seconds" * longer


def test_editors_say_that_the_budget_ended_before_the_best_candidate_was_measured():
    told = results.result(outcome=JobOutcome.inconclusive, stop_reason=StopReason.unverified.value)
    words = "a correct candidate was found and not confirmed: the budget ended first"
    assert summary(told) == f"inconclusive: {words}"


def test_how_the_candidates_failed_is_said():
    outcomes = [wrong(Outcome.crashed, "signal 11"), *[wrong(Outcome.hung, f"after {n} s") for n in (5, 6)]]
    turn = msgspec.structs.replace(step(1), candidates=step(1).candidates * 3, evaluations=tuple(outcomes))
    ended = msgspec.structs.replace(trajectory(StopReason.finished), steps=(turn,))
    assert why_none(ended) == "none of 3 candidates was correct; 2 ended as hung, the first: after 5 s"
    right = msgspec.structs.replace(turn, evaluations=(*outcomes[:2], correct(timing())))
    assert why_none(msgspec.structs.replace(ended, steps=(right,))) == ""


def test_a_large_error_of_large_values_is_seen_to_be_a_small_part_of_them():
    words = of_accuracy(accuracy_of(error=1.7e11, relative_error=3e-8), "f32")
    assert words.startswith("against float64: relative 3e-08, absolute 1.7e+11 at most; 1 times PyTorch's own; f32")
    assert of_error(None, 1e-6) == "against float64: absolute 1e-06 at most"


@pytest.mark.parametrize(
    ("policy", "words"),
    [("generator", "the generator"), ("model", "the model"), ("freeform", "the author of the file that was checked")],
)
def test_who_wrote_a_kernel_is_said_in_words(policy, words):
    rows = dict(facts(results.result(best=results.best(policy=policy)), None))
    assert rows["written by"] == words


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
    assert mixed.summary() == (
        "2.00× (1.94–2.06) as fast as your class is without torch.compile; "
        "your own code runs for less than 101 elements and where torch.compile compiles what calls it"
    )
    # Where the declared size gained nothing, nothing else was looked at.
    assert conclude((row(speedup=0.9),)).compiled_parent == "original"


def test_unaligned_tensors_are_copied_only_where_that_is_a_gain():
    assert conclude((row(), row("unaligned", speedup=1.5))).options.unaligned == "copy"
    slower = conclude((row(), row("unaligned", speedup=0.8)))
    assert slower.options.unaligned == conclude((row(),)).options.unaligned == "original"
    assert slower.worth and slower.compiled_parent == "original" and slower.min_elements == 0


@pytest.mark.parametrize(
    "rows",
    [(row(speedup=1.01),), (row(speedup=0.5),), (row(), row(elements=5000, speedup=0.5)), (row(equal=False),)],
)
def test_a_gain_that_the_guard_eats_is_none(rows):
    assert not conclude(rows).worth


def test_kernels_that_never_ran_or_that_give_other_results_are_not_said_to_gain_nothing():
    unequal = conclude((row(equal=False),), 0, {"hooks": 3})
    assert (
        unequal.failure == unequal.summary() == "the edited file gives other results than the original (alone, B=1000)"
    )
    idle = conclude((row(speedup=1.3),), 0, {"alignment": 3, "small": 2})
    assert not idle.worth
    assert idle.summary() == (
        "the kernels never ran in the edited file: an input is not aligned as the kernels need it (3 calls), "
        "small (2 calls)"
    )
    assert conclude((row(speedup=0.5),), 7, {}).failure == ""


def test_a_job_that_ran_out_of_time_says_how_to_go_on():
    assert outcome_of(trajectory(StopReason.unverified)) is JobOutcome.inconclusive
    left = {"job": "3", "plan.json": "/state/jobs/3/result/plan.json"}
    told = results.result(outcome=JobOutcome.inconclusive, stop_reason="unverified", artifacts=left)
    assert verdict(told) == (
        "a correct candidate was found and not confirmed: the budget ended first; "
        "confirm it with: kernel-assistant confirm 3"
    )
    assert "not known" in doubt_of(told)
    nothing = results.result(outcome=JobOutcome.no_candidate, stop_reason="wall_time", evaluations=0)
    assert verdict(nothing) == ("the budget ended before a candidate was judged; continue with a longer --budget")
    some = results.result(outcome=JobOutcome.no_candidate, stop_reason="wall_time", evaluations=4)
    assert verdict(some) == "no correct candidate was found; a longer --budget tries more"
