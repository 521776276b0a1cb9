"""Hand-written candidates in a full evaluation on the CPU: each gets the right outcome, with its reason."""

from __future__ import annotations

import re

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
    assert 0 < accuracy.error < 1e-4 and 0 < accuracy.reference_error < 1e-4
    assert accuracy.error_ratio == pytest.approx(accuracy.error / accuracy.reference_error, rel=1e-6)
    assert 0 < accuracy.relative_error < 1e-5
    assert (accuracy.inputs_tried, accuracy.shapes_tried, accuracy.bit_reproducible) == (1, 1, True)
    assert min(timing.candidate_ms, timing.eager_ms, timing.samples) > 0
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


CRASHED = Outcome.crashed, Stage.verify
COUNTER = ("/*GLOBAL*/", "static int calls;"), ("/*ENTRY*/", "calls++;")
DIVIDES = ("/*GLOBAL*/", "static volatile int d;"), ("/*ENTRY*/", "*(volatile int*)&d /= d;")
#: Edits, the outcome and its stage, and what the message says.
ENDINGS = {
    "null pointer": ([("/*ENTRY*/", "*(volatile int*)0 = 1;")], *CRASHED, "^the runner died of SIGSEGV$"),
    "trap": ([("/*ENTRY*/", "__builtin_trap();")], *CRASHED, "^the runner died of SIGILL$"),
    "division by zero": (DIVIDES, *CRASHED, "^the runner died of SIGFPE$"),
    "writes to an input": ([("/*ENTRY*/", "((float*)a->x)[0] = 0.5f;")], *CRASHED, "^the runner died of SIGSEGV$"),
    "writes to a parameter": ([("/*ENTRY*/", "((float*)a->w)[3] += 1;")], *CRASHED, "^the runner died of SIGSEGV$"),
    "never ends": ([("/*ENTRY*/", "for (volatile int go = 1; go;) {}")], Outcome.hung, Stage.verify, "killed"),
    "wrong when repeated": (
        [*COUNTER, ("o[i] = ", "o[i] = 0.01f * (calls - 1) + ")],
        *(Outcome.nondeterministic, Stage.verify, "^right at first, wrong when run again"),
    ),
    "other values once timed": (
        [*COUNTER, ("o[i] = ", "o[i] = (calls < 4 ? 1.0f : 1.01f) * ")],
        *(Outcome.cheating, Stage.profile, "while timed"),
    ),
    "nothing once timed": (
        [*COUNTER, ("o[i] = ", "if (calls < 4) o[i] = ")],
        *(Outcome.cheating, Stage.profile, "left its outputs as they were"),
    ),
    "needs more than a kernel": (
        [("#include <math.h>", "#include <math.h>\n#include <unistd.h>")],
        *(Outcome.refused, Stage.screen, r"unistd\.h"),
    ),
}


@pytest.mark.parametrize(("edits", "outcome", "stage", "said"), ENDINGS.values(), ids=ENDINGS)
def test_what_ends_otherwise_is_named(norm, edits, outcome, stage, said):
    evaluation = judged(norm, *edits)
    assert (evaluation.outcome, evaluation.stage, evaluation.timing) == (outcome, stage, None)
    assert re.search(said, evaluation.message)
    assert evaluation.mismatch is not None or outcome is not Outcome.nondeterministic


def test_a_repeat_that_differs_within_bounds_is_said(norm):
    evaluation = judged(norm, *COUNTER, ("o[i] = ", "o[i] = 1e-6f * (calls % 2) + "))
    assert evaluation.outcome is Outcome.correct
    assert not evaluation.accuracy.bit_reproducible


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


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        pytest.param(("a->w[i]", "(0.5f + i / 255.0f)"), "reweighted", id="baked weights"),
        pytest.param(("o[i] = ", "o[i] = fabsf(x[i]) > 8 ? 0 : "), "x10", id="one range of values"),
    ],
)
def test_what_holds_for_the_declared_values_only_is_found(norm, edit, said):
    quick = judged(norm, edit)
    assert quick.correct, quick.message
    full = judged(norm, edit, tier=Tier.full)
    assert full.outcome is Outcome.incorrect and said in full.message


def test_a_compile_error_says_where(norm):
    evaluation = judged(norm, ("float sum = 0.0f;", "float sum = zero;"))
    assert (evaluation.outcome, evaluation.stage) == (Outcome.compile_error, Stage.compile)
    (first, *_) = evaluation.diagnostics
    assert (first.file, first.line) == ("norm.cpp", 9)
    assert "zero" in evaluation.message


ARGUMENTS = (("x", "x0"), ("w", "p0"), ("o", "out0"), ("rows", "B"))
DIVIDED = (*ARGUMENTS[:3], ("rows", "B // 0"))
BAD_PLANS = {
    "unknown symbol": ({"launches": (Launch(symbol="other", args=ARGUMENTS),)}, "no symbol other"),
    "division by zero": ({"launches": (Launch(symbol="norm", args=DIVIDED),)}, "bad expression 'B // 0'"),
    "negative scratch": ({"scratch": (buffer("s", "0-B"),)}, "negative size"),
}


@pytest.mark.parametrize(("changes", "said"), BAD_PLANS.values(), ids=BAD_PLANS)
def test_a_bad_plan_is_named(norm, changes, said):
    symbol = changes["launches"][0].symbol if "launches" in changes else "norm"
    evaluation = norm.evaluate([candidate(("norm_args", f"{symbol}_args"), **changes)], Tier.quick)[0]
    assert evaluation.outcome is Outcome.crashed
    assert said in evaluation.message


def test_scratch_that_does_not_fit_is_out_of_memory(norm):
    evaluation = judged(norm, scratch=(BufferSpec(name="s", dtype="f64", shape=("B", str(1 << 40))),))
    assert evaluation.outcome is Outcome.out_of_memory


def test_many_are_judged_in_order_after_all_that(norm):
    batch = [candidate(), candidate(("1e-6f", "1e-1f")), candidate(("float sum", "flot sum")), candidate()]
    outcomes = [evaluation.outcome for evaluation in norm.evaluate(batch, Tier.quick)]
    assert outcomes == [Outcome.correct, Outcome.incorrect, Outcome.compile_error, Outcome.correct]
