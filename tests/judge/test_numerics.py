"""Properties of the error bounds, over random tensors."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assistant.worker.verifying import numerics
from kernel_assistant.worker.verifying.numerics import compare, surely_passes

HALF = [torch.bfloat16, torch.float16]
POLICIES = ["kernelbench", "strict", "paper"]
FEW = settings(max_examples=40, deadline=None)


def reference(seed: int, size: int, scale: float, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Returns (PyTorch's output, float64 values): the output is the float64 values rounded once."""
    want = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale
    return [want.to(dtype), want]


@FEW
@given(st.integers(0, 2**31), st.integers(1, 500), st.floats(-12, 12), st.sampled_from(POLICIES))
def test_the_reference_itself_passes(seed, size, exponent, policy):
    plain, want = reference(seed, size, 10.0**exponent)
    result = compare(plain, plain, want, policy)
    assert result.passed and result.error == result.reference_error


@FEW
@given(st.integers(0, 2**31), st.integers(2, 500), st.floats(-12, 12), st.sampled_from(POLICIES))
def test_zeros_never_pass_however_small_the_outputs_are(seed, size, exponent, policy):
    plain, want = reference(seed, size, 10.0**exponent)
    assert not compare(torch.zeros_like(plain), plain, want, policy).passed


@FEW
@given(st.integers(0, 2**31), st.floats(-6, 6), st.floats(0.0, 0.9), st.sampled_from(["kernelbench", "paper"]))
def test_errors_below_the_tolerance_pass_and_above_fail(seed, exponent, share, policy):
    plain, want = reference(seed, 64, 10.0**exponent)
    tolerance = numerics.TOLERANCE[policy][torch.float32]
    assert compare((want * (1 + share * tolerance)).float(), plain, want, policy).passed
    assert not compare((want * (1 + 4 * tolerance)).float(), plain, want, policy).passed


@FEW
@given(st.integers(1, 500), st.floats(-6, 6), st.floats(0.0, 0.9), st.sampled_from(POLICIES))
def test_around_an_exact_zero_the_scale_is_the_usual_one(size, exponent, share, policy):
    usual, zeros = 10.0**exponent, torch.zeros(size)
    bound = numerics.TOLERANCE[policy][torch.float32] * min(1.0, usual)
    assert compare(zeros + share * bound, zeros, zeros.double(), policy, usual).passed
    assert not compare(zeros + 1.1 * bound, zeros, zeros.double(), policy, usual).passed
    assert not compare(zeros + share * bound + 1e-30, zeros, zeros.double(), policy).passed


def test_what_is_usual_does_not_loosen_outputs_that_are_there():
    plain, want = reference(1, 100, 1e-6)
    assert not compare(torch.zeros_like(plain), plain, want, "kernelbench", usual=1.0).passed


def test_one_wrong_element_among_many_fails_and_is_named():
    plain, want = reference(1, 100_000, 1.0)
    got = plain.clone()
    got[31_337] += 0.01
    result = compare(got, plain, want, "kernelbench")
    assert (result.passed, result.failures, result.worst, result.why) == (False, 1, 31_337, "value")


def test_a_drift_within_every_elements_bound_fails_by_its_norm():
    plain, want = reference(2, 10_000, 1.0)
    allowed = 1e-4 * (want.abs() + min(1.0, float(want.square().mean().sqrt())))
    result = compare((want + 0.98 * allowed.copysign(want)).float(), plain, want, "kernelbench")
    assert (result.passed, result.failures, result.why) == (False, 0, "norm")


def test_the_bound_is_enlarged_by_pytorchs_own_error():
    want = torch.ones(1000, dtype=torch.float64)
    theirs = (want + 3e-3).float()
    assert compare((want - 5e-3).float(), theirs, want, "kernelbench").passed
    assert not compare((want - 5e-3).float(), want.float(), want, "kernelbench").passed
    assert not compare((want - 7e-3).float(), theirs, want, "kernelbench").passed


def test_strict_allows_rounding_and_twice_pytorchs_error():
    want = torch.linspace(1, 2, 1000, dtype=torch.float64)
    exact, off = want.float(), (want * (1 + 1e-6)).float()
    assert compare(exact, exact, want, "strict").passed
    assert not compare(off, exact, want, "strict").passed
    assert compare((want * (1 - 1e-6)).float(), off, want, "strict").passed


@pytest.mark.parametrize("dtype", HALF)
def test_half_types_may_be_off_by_their_rounding(dtype):
    plain, want = reference(3, 1000, 1.0, dtype)
    assert compare(plain, plain, want, "kernelbench").passed
    assert not compare((plain * 1.1).to(dtype), plain, want, "kernelbench").passed


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("got", "theirs", "want", "passes"),
    [
        (NAN, 1.0, 1.0, False),
        (INF, 1.0, 1.0, False),
        (NAN, NAN, NAN, True),
        (1.0, NAN, NAN, False),
        (INF, INF, INF, True),
        (-INF, INF, INF, False),
        (NAN, INF, INF, False),
        (3e38, INF, INF, False),
        (INF, INF, 1e39, True),  # overflows in float32, as PyTorch does
        (NAN, NAN, 2.0, True),  # PyTorch says NaN where float64 has a value
        (2.0, NAN, 2.0, True),
        (7.0, NAN, 2.0, False),
    ],
)
def test_classes_of_special_values(got, theirs, want, passes):
    tensors = [torch.tensor([1.0, value, 2.0], dtype=torch.float64) for value in (got, theirs, want)]
    result = compare(tensors[0].float(), tensors[1].float(), tensors[2], "kernelbench")
    assert result.passed is passes
    if not passes:
        assert (result.failures, result.worst) == (1, 1)


@FEW
@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=50), st.data())
def test_integers_are_exact(values, data):
    want = torch.tensor(values, dtype=torch.int32)
    assert compare(want.clone(), want, want, "paper").passed
    position = data.draw(st.integers(0, len(values) - 1))
    got = want.clone()
    got[position] ^= 1
    result = compare(got, want, want, "paper")
    assert (result.passed, result.failures, result.worst) == (False, 1, position)


@pytest.mark.parametrize(
    ("got", "want"),
    [([2**53, 2**53 + 1], [2**53, 2**53]), ([False, False, True], [True, False, True])],
    ids=["integers that no float tells apart", "booleans"],
)
def test_what_is_no_float_is_exact(got: list[int], want: list[int]) -> None:
    due = torch.tensor(want)
    assert compare(due.clone(), due, due, "kernelbench").passed
    assert not compare(torch.tensor(got), due, due, "kernelbench").passed


@FEW
@given(st.integers(0, 2**31), st.integers(1, 300), st.sampled_from([1, 7, 64, 1000]), st.booleans())
def test_chunks_change_nothing(seed, size, chunk, broken):
    plain, want = reference(seed, size, 1.0)
    got = plain.clone()
    if broken:
        got[size // 2] += 1
    whole = compare(got, plain, want, "kernelbench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numerics, "CHUNK", chunk)
        parts = compare(got, plain, want, "kernelbench")
    for field in ("passed", "failures", "worst", "error"):
        assert getattr(whole, field) == getattr(parts, field)
    assert whole.squared_error == pytest.approx(parts.squared_error)


@FEW
@given(st.integers(0, 2**31), st.sampled_from([(5, 8), (1, 1), (3, 4, 2)]))
def test_layout_does_not_count(seed, shape):
    plain, want = reference(seed, int(torch.tensor(shape).prod()), 1.0)
    plain, want = plain.reshape(shape), want.reshape(shape)
    turned = plain.transpose(0, 1).contiguous().transpose(0, 1)
    assert compare(turned, plain, want, "kernelbench").passed


def test_an_empty_output_passes():
    empty = torch.empty(0, 4)
    assert compare(empty, empty, empty.double(), "kernelbench").passed


@pytest.mark.parametrize("policy", ["kernelbench", "paper", "strict while timed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_surely_passes_passes(policy: str, dtype: torch.dtype) -> None:
    generator, said = torch.Generator().manual_seed(1), set()
    for power in range(-9, 1):
        reference = torch.randn(1000, generator=generator).to(dtype)
        noise = 10.0**power * torch.randn(1000, generator=generator)
        got = (reference.double() + noise).to(dtype)
        surely = bool(surely_passes(got, reference, policy))
        said.add(surely)
        assert not surely or compare(got, reference, reference.double(), policy).passed
    assert said == {True, False}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_surely_passes_only_where_pytorchs_is_the_same(value: float) -> None:
    reference = torch.ones(10)
    got = reference.clone()
    got[3] = value
    assert not surely_passes(got, reference, "kernelbench", math.inf if math.isnan(value) else 1e300)
    assert not surely_passes(reference, got, "kernelbench")
    assert surely_passes(got, got, "kernelbench") and not surely_passes(got, -got, "kernelbench")
    assert compare(got, got, got.double(), "kernelbench").passed


def test_an_excused_error_surely_passes() -> None:
    reference = torch.ones(10)
    assert surely_passes(reference + 0.5, reference, "kernelbench", 0.5)
    assert not surely_passes(reference + 0.75, reference, "kernelbench", 0.5)


def test_a_large_error_of_a_large_value_surely_passes_if_compare_says_so() -> None:
    reference = torch.tensor([1e6, *[1.0] * 99])
    got = reference + torch.tensor([50.0, *[0.0] * 99])
    assert compare(got, reference, reference.double(), "kernelbench").passed
    assert surely_passes(got, reference, "kernelbench")


def test_integers_surely_pass_if_they_are_equal() -> None:
    reference = torch.arange(10)
    assert surely_passes(reference.clone(), reference, "kernelbench")
    assert not surely_passes(reference + 1, reference, "kernelbench")


@pytest.mark.parametrize("times", [10.0, 30.0])
def test_where_pytorch_has_no_digit_right_noise_of_its_size_passes(times: float) -> None:
    """A mean of what a norm has centred is zero: a larger multiple of PyTorch's error passes, but no value does."""
    noise = torch.randn(128, generator=torch.Generator().manual_seed(1)) * 1e-8
    want = noise.double() * 1e-9
    assert compare(times * noise.flip(0), noise, want, "kernelbench").passed == (times < numerics.TIMES_OF_NOISE)
    assert not compare(noise + 1e-5, noise, want, "kernelbench").passed
    # With a digit right, twice PyTorch's error is the bound.
    assert not compare(times * noise.flip(0), noise, noise.double() * 1e-2, "kernelbench").passed
