"""Hand-written candidates in a full evaluation on the CPU: each gets the right outcome, with its reason."""

from __future__ import annotations

import pytest

from kernel_assistant.records import BufferSpec, Launch, Outcome, Stage, Tier, decode, encode
from kernel_assistant.records.evaluation import Evaluation
from tests.judge.kernels import ROWS, WIDTH, buffer, candidate


def judged(environment, *edits, tier=Tier.quick, **changes):
    (evaluation,) = environment.evaluate([candidate(*edits, **changes)], tier)
    assert decode(encode(evaluation), Evaluation) == evaluation
    return evaluation


def test_an_honest_candidate_is_correct_in_the_quick_tier(norm):
    evaluation = judged(norm)
    assert (evaluation.outcome, evaluation.stage) == (Outcome.correct, Stage.profile)
    accuracy, timing = evaluation.accuracy, evaluation.timing
    assert 0 < accuracy.error < 1e-4
    assert 0 < accuracy.reference_error < 1e-4
    assert accuracy.error_ratio == pytest.approx(accuracy.error / accuracy.reference_error, rel=1e-6)
    assert 0 < accuracy.relative_error < 1e-5
    assert (accuracy.inputs_tried, accuracy.shapes_tried, accuracy.bit_reproducible) == (1, 1, True)
    assert timing.candidate_ms > 0
    assert timing.eager_ms > 0
    assert timing.samples > 0
    # The ceilings of a machine that was busy when they were measured stay unknown.
    assert (timing.floor_ms > 0) == (norm.device.copy_bandwidth > 0)
    assert set(evaluation.seconds) == {"compile", "verify", "profile"}
    assert evaluation.precision == "f32"


def test_the_tier_that_only_verifies_times_nothing(norm):
    evaluation = judged(norm, tier=Tier.verify)
    assert (evaluation.outcome, evaluation.stage, evaluation.timing) == (Outcome.correct, Stage.verify, None)
    assert set(evaluation.seconds) == {"compile", "verify"}
    wrong = judged(norm, ("x[i] * k", "0 * k"), tier=Tier.verify)
    assert wrong.outcome is Outcome.incorrect and "got 0 want" in wrong.message


def test_an_honest_candidate_is_correct_in_the_full_tier(norm):
    evaluation = judged(norm, tier=Tier.full)
    assert evaluation.outcome is Outcome.correct, evaluation.message
    accuracy, timing = evaluation.accuracy, evaluation.timing
    # Declared, three held-out sizes, other weights, five ranges of values.
    assert (accuracy.inputs_tried, accuracy.shapes_tried) == (10, 4)
    assert timing.compile_ms > 0
    assert timing.speedup_vs_compile_ci[0] <= timing.speedup_vs_compile <= timing.speedup_vs_compile_ci[1]
    assert timing.speedup_vs_eager_ci[0] <= timing.speedup_vs_eager <= timing.speedup_vs_eager_ci[1]
    assert f"{timing.candidate_ms:.4g} ms" in evaluation.message


WRONG = {
    "epsilon": (("1e-6f", "1e-1f"), "got"),
    "zeros": (("x[i] * k", "0 * k"), "got 0 want"),
    "weights left out": (("* a->w[i]", ""), "got"),
    "last element not written": (("o[i] = ", "if (r + 1 < a->rows || i < 255) o[i] = "), "got nan"),
    "half of the outputs not written": (("o[i] = ", "if (i % 2) o[i] = "), f"{ROWS * WIDTH // 2} of {ROWS * WIDTH}"),
    "nan": (("o[i] = ", "o[i] = i == 7 ? NAN : "), f"{ROWS} of {ROWS * WIDTH}"),
    "infinity": (("o[i] = ", "o[i] = r == 3 && i == 7 ? INFINITY : "), "out0[3,7] got nan"),
    "row before": (("a->x + r * 256", "a->x + (r ? r - 1 : 0) * 256"), "got"),
    "one past the end": (("/*ENTRY*/", "a->o[a->rows * 256] = 1;"), "wrote outside its outputs"),
    "far past the end, inside the red zone": (("/*ENTRY*/", "a->o[a->rows * 256 + 63] = 1;"), "wrote outside"),
}


@pytest.mark.parametrize(("edit", "said"), WRONG.values(), ids=WRONG)
def test_wrong_values_are_incorrect_and_named(norm, edit, said):
    evaluation = judged(norm, edit)
    assert (evaluation.outcome, evaluation.stage) == (Outcome.incorrect, Stage.verify)
    assert said in evaluation.message
    assert "workload 0 declared" in evaluation.message
    if evaluation.mismatch:
        assert (evaluation.mismatch.output, evaluation.mismatch.total) == ("out0", ROWS * WIDTH)


def test_a_single_wrong_element_is_found_by_its_index(norm):
    evaluation = judged(norm, ("o[i] = ", "o[i] = r == 5 && i == 77 ? 3.0f : "))
    assert evaluation.mismatch.index == (5, 77)
    assert (evaluation.mismatch.count, evaluation.mismatch.got) == (1, 3.0)


def test_writing_to_an_input_is_a_crash(norm):
    evaluation = judged(norm, ("/*ENTRY*/", "((float*)a->x)[0] = 0.5f;"))
    assert (evaluation.outcome, evaluation.message) == (Outcome.crashed, "the runner died of SIGSEGV")


def test_writing_to_a_parameter_is_a_crash(norm):
    assert judged(norm, ("/*ENTRY*/", "((float*)a->w)[3] += 1;")).outcome is Outcome.crashed


@pytest.mark.parametrize(
    ("entry", "name"),
    [("*(volatile int*)0 = 1;", "SIGSEGV"), ("__builtin_trap();", "SIGILL"), ("*(volatile int*)&d /= d;", "SIGFPE")],
)
def test_a_crash_names_its_signal(norm, entry, name):
    evaluation = judged(norm, ("/*GLOBAL*/", "static volatile int d;"), ("/*ENTRY*/", entry))
    assert (evaluation.outcome, evaluation.message) == (Outcome.crashed, f"the runner died of {name}")


COUNTER = ("/*GLOBAL*/", "static int calls;"), ("/*ENTRY*/", "calls++;")


def test_a_wrong_repeat_is_nondeterministic(norm):
    evaluation = judged(norm, *COUNTER, ("o[i] = ", "o[i] = 0.01f * (calls - 1) + "))
    assert evaluation.outcome is Outcome.nondeterministic
    assert evaluation.message.startswith("right at first, wrong when run again")
    assert evaluation.mismatch is not None


def test_a_repeat_that_differs_within_bounds_is_said(norm):
    evaluation = judged(norm, *COUNTER, ("o[i] = ", "o[i] = 1e-6f * (calls % 2) + "))
    assert evaluation.outcome is Outcome.correct
    assert not evaluation.accuracy.bit_reproducible


def test_other_values_once_it_is_timed_are_cheating(norm):
    evaluation = judged(norm, *COUNTER, ("o[i] = ", "o[i] = (calls < 4 ? 1.0f : 1.01f) * "))
    assert (evaluation.outcome, evaluation.stage) == (Outcome.cheating, Stage.profile)
    assert "while timed" in evaluation.message
    assert evaluation.timing is None


def test_calls_that_do_nothing_once_they_are_timed_are_cheating(norm):
    evaluation = judged(norm, *COUNTER, ("o[i] = ", "if (calls < 4) o[i] = "))
    assert (evaluation.outcome, evaluation.stage) == (Outcome.cheating, Stage.profile)
    assert "left its outputs as they were" in evaluation.message


def test_hard_coded_sizes_pass_only_where_they_are_declared(norm):
    edit = ("r < a->rows", f"r < {ROWS}")
    quick = judged(norm, edit)
    assert quick.correct, quick.message
    assert quick.sizes == "all"
    full = judged(norm, edit, tier=Tier.full)
    assert (full.outcome, full.sizes) == (Outcome.correct, "declared") and not full.correct_everywhere
    assert "B=" in full.elsewhere or "SIGSEGV" in full.elsewhere


def test_a_baked_batch_that_is_too_small_is_found_at_a_larger_one(norm):
    full = judged(norm, ("r < a->rows", f"r < (a->rows < {ROWS} ? a->rows : {ROWS})"), tier=Tier.full)
    assert (full.outcome, full.sizes) == (Outcome.correct, "declared")
    assert "B=72" in full.elsewhere


def test_baked_weights_are_found_by_other_weights(norm):
    edit = ("a->w[i]", "(0.5f + i / 255.0f)")
    quick = judged(norm, edit)
    assert quick.correct, quick.message
    full = judged(norm, edit, tier=Tier.full)
    assert full.outcome is Outcome.incorrect
    assert "reweighted" in full.message


def test_what_holds_for_one_range_of_values_only_is_found(norm):
    edit = ("o[i] = ", "o[i] = fabsf(x[i]) > 8 ? 0 : ")
    quick = judged(norm, edit)
    assert quick.correct, quick.message
    full = judged(norm, edit, tier=Tier.full)
    assert full.outcome is Outcome.incorrect
    assert "x10" in full.message


def test_a_compile_error_says_where(norm):
    evaluation = judged(norm, ("float sum = 0.0f;", "float sum = zero;"))
    assert (evaluation.outcome, evaluation.stage) == (Outcome.compile_error, Stage.compile)
    (first, *_) = evaluation.diagnostics
    assert (first.file, first.line) == ("norm.cpp", 9)
    assert "zero" in evaluation.message


def test_what_no_kernel_needs_is_refused(norm):
    evaluation = judged(norm, ("#include <math.h>", "#include <math.h>\n#include <unistd.h>"))
    assert (evaluation.outcome, evaluation.stage) == (Outcome.refused, Stage.screen)
    assert "unistd.h" in evaluation.message


ARGUMENTS = (("x", "x0"), ("w", "p0"), ("o", "out0"), ("rows", "B"))
BAD_PLANS = {
    "unknown symbol": ({"launches": (Launch(symbol="other", args=ARGUMENTS),)}, "no symbol other"),
    "division by zero": (
        {"launches": (Launch(symbol="norm", args=(*ARGUMENTS[:3], ("rows", "B // 0"))),)},
        "bad expression 'B // 0'",
    ),
    "negative scratch": ({"scratch": (buffer("s", "0-B"),)}, "negative size"),
}


@pytest.mark.parametrize(("changes", "said"), BAD_PLANS.values(), ids=BAD_PLANS)
def test_a_bad_plan_is_named(norm, changes, said):
    source = (
        candidate().sources["norm.cpp"].replace("norm_args", f"{changes['launches'][0].symbol}_args")
        if ("launches" in changes)
        else candidate().sources["norm.cpp"]
    )
    evaluation = norm.evaluate([candidate(source=source, **changes)], Tier.quick)[0]
    assert evaluation.outcome is Outcome.crashed
    assert said in evaluation.message


def test_scratch_that_does_not_fit_is_out_of_memory(norm):
    evaluation = judged(norm, scratch=(BufferSpec(name="s", dtype="f64", shape=("B", str(1 << 40))),))
    assert evaluation.outcome is Outcome.out_of_memory


def test_a_kernel_that_never_ends_is_killed(norm):
    evaluation = judged(norm, ("/*ENTRY*/", "for (volatile int go = 1; go;) {}"))
    assert evaluation.outcome is Outcome.hung
    assert "killed" in evaluation.message


def test_after_all_that_an_honest_one_is_still_correct(norm):
    assert judged(norm, ("/*END*/", "/* last */")).outcome is Outcome.correct


def test_many_are_judged_in_order(norm):
    batch = [candidate(), candidate(("1e-6f", "1e-1f")), candidate(("float sum", "flot sum")), candidate()]
    outcomes = [evaluation.outcome for evaluation in norm.evaluate(batch, Tier.quick)]
    assert outcomes == [Outcome.correct, Outcome.incorrect, Outcome.compile_error, Outcome.correct]
