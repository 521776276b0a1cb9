"""Decides whether an output is close enough to a float64 run of the reference. Pure functions on tensors.

A candidate passes if every element and the whole output are within bounds:

    |got - want| ≤ max(tol · (|want| + min(1, rms(want))), 2 · max|reference - want|)      element by element
    ‖got - want‖₂ ≤ max(tol · ‖want‖₂, 2 · ‖reference - want‖₂)                            over the output

A few elements beyond the first bound may be right all the same (`sensitivity.py`).

`want` is float64, `reference` is PyTorch in the task's dtype. The absolute part scales with the output, so that zeros
never pass for small outputs (a softmax over 393,216 columns is 2.5e-6 everywhere). Where `want` is zero everywhere,
such as a divergence of equal inputs, PyTorch may be exact by chance; then the scale is the output's usual one. Where
PyTorch has no digit right, such as in the mean of values that a norm has centred, the output is rounding alone: another
order of sums gives other noise, of which PyTorch's shows the size only roughly, so that the factor is 16 instead of 2.
`strict` sets tol to one rounding of the output dtype, so that only twice PyTorch's own error is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

CHUNK = 1 << 25
#: An error of at most TIMES times PyTorch's own passes; TIMES_OF_NOISE times, if that exceeds NOISE times the output.
TIMES, TIMES_OF_NOISE, NOISE = 2.0, 16.0, 1e3
#: A comparison names the indices of its failures if there are no more, and no more than this share of the output.
MOST_PLACES, PLACES_SHARE = 8, 1e-5
TOLERANCE = {
    "kernelbench": {torch.float64: 1e-8, torch.float32: 1e-4, torch.bfloat16: 1e-2, torch.float16: 1e-2},
    "paper": {torch.float64: 1e-8, torch.float32: 1e-2, torch.bfloat16: 1e-2, torch.float16: 1e-2},
    "strict": {
        dtype: 2 * torch.finfo(dtype).eps for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    },
    # `strict` for other inputs than those that were verified, where a right kernel may be less lucky.
    "strict while timed": {torch.float64: 4e-15, torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 1e-2},
}


@dataclass
class OutputComparison:
    """The comparison of one output with float64. `error` and `reference_error` are the largest absolute errors of
    candidate and PyTorch, `failures` the number of elements beyond their bound, and `worst` the flat index of the
    element that exceeds its bound the most. `why` is "value", "norm" (the error of the whole output is too large) or
    "".

    `half_ulp` is half a unit in the last place of the largest value, in the output's dtype; `rms` is the root mean
    square of the float64 output. `places` are the flat indices of all failing elements, if they are few and the whole
    output is within its bound; else it is empty."""

    passed: bool
    error: float
    reference_error: float
    squared_error: float
    squared_norm: float
    failures: int
    worst: int
    why: str
    half_ulp: float = 0.0
    rms: float = 0.0
    places: tuple[int, ...] = ()


@dataclass(frozen=True)
class WholeOutput:
    """The whole output of which a part is compared: `reference` from PyTorch, `want` from float64. The scale of the
    values and PyTorch's own errors are computed from the whole output."""

    reference: torch.Tensor
    want: torch.Tensor


def compare(
    got: torch.Tensor,
    reference: torch.Tensor,
    want: torch.Tensor,
    policy: str,
    usual: float = 0.0,
    whole: WholeOutput | None = None,
) -> OutputComparison:
    """Compares a candidate's output with the reference's and with float64, under the error policy `policy` (a key of
    TOLERANCE). All have one shape; `want` is float64 if floating. `usual` is the root mean square of the output on the
    declared inputs. If `got` is a part of an output, `whole` is that output: the part then has the same bounds as the
    whole."""
    if not got.dtype.is_floating_point:
        return _compare_exact(got, reference)
    tolerance = TOLERANCE[policy][got.dtype]
    stats = _statistics(got, reference, want)
    scale = stats if whole is None else _statistics(whole.reference, whole.reference, whole.want)
    absolute = tolerance * min(1.0, scale.rms or usual)
    is_noise = 0 < NOISE**2 * scale.squared_norm < scale.reference_squared_error
    times = TIMES_OF_NOISE if is_noise else TIMES
    floor = times * scale.reference_error
    failures, worst, indices = 0, 0, list[int]()
    if not (stats.all_finite and stats.error <= max(absolute, floor)):
        failures, worst, indices = _failures(got, reference, want, tolerance, absolute, floor)
    squared_scale = scale.squared_norm or usual**2 * scale.count
    norm_bound = max(tolerance**2 * squared_scale, times**2 * scale.reference_squared_error)
    drifted = stats.squared_error > norm_bound
    if drifted and not failures:
        worst = _largest_error(got, reference, want)
    return OutputComparison(
        passed=not failures and not drifted,
        error=stats.error,
        reference_error=stats.reference_error,
        squared_error=stats.squared_error,
        squared_norm=stats.squared_norm,
        failures=failures,
        worst=worst,
        why="value" if failures else "norm" if drifted else "",
        half_ulp=stats.peak * torch.finfo(got.dtype).eps / 2,
        rms=stats.rms,
        places=() if drifted or failures > PLACES_SHARE * got.numel() else tuple(indices),
    )


def less_exact(one: torch.Tensor, other: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Returns `other` if its error against `want` (float64) is larger than that of `one` in the 2-norm, and it is
    finite wherever `one` is; otherwise `one`."""
    if not one.dtype.is_floating_point or other.stride() != one.stride():
        return one
    stats = _statistics(other, one, want)
    finite = stats.all_finite or torch.equal(torch.isfinite(one), torch.isfinite(other))
    return other if finite and stats.squared_error > stats.reference_squared_error else one


def is_as_inexact(one: torch.Tensor, reference: torch.Tensor, want: torch.Tensor) -> bool:
    """Whether the 2-norm of the error of `one` is at least 1 / TIMES of that of `reference`, both against `want`. True
    for integers."""
    if not one.dtype.is_floating_point:
        return True
    stats = _statistics(one, reference, want)
    return TIMES**2 * stats.squared_error >= stats.reference_squared_error


def surely_passes(got: torch.Tensor, reference: torch.Tensor, policy: str, excused: float = 0.0) -> torch.Tensor:
    """Returns a boolean tensor on the device. True means that `compare(got, reference, reference.double(), policy)`
    passes, or that its largest error is at most `excused`. False means nothing: `compare` may pass all the same."""
    if not got.dtype.is_floating_point:
        return (got == reference).all()
    if not got.numel():
        return torch.ones((), dtype=torch.bool, device=got.device)
    norm, tolerance = torch.linalg.vector_norm, TOLERANCE[policy][got.dtype]
    mine, want = got.reshape(-1).double(), reference.reshape(-1).double()
    same = (mine == want) | (torch.isnan(mine) & torch.isnan(want))
    error = torch.where(same, 0.0, (mine - want).abs())
    want = torch.where(torch.isfinite(want), want, 0.0)
    squared = norm(want) ** 2
    bound = tolerance * (want.abs() + torch.clamp((squared / want.numel()).sqrt(), max=1.0))
    passed = torch.logical_and((error <= bound).all(), norm(error) ** 2 <= tolerance**2 * squared)
    return torch.logical_or(passed, error.max() <= excused)


def _compare_exact(got: torch.Tensor, reference: torch.Tensor) -> OutputComparison:
    different = (got != reference).reshape(-1)
    failures = int(different.sum())
    worst = int(different.to(torch.uint8).argmax()) if failures else 0
    return OutputComparison(
        not failures, float(bool(failures)), 0.0, 0.0, 0.0, failures, worst, "value" if failures else ""
    )


def _beyond(
    g: torch.Tensor, r: torch.Tensor, w: torch.Tensor, bound: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns a mask of the elements that fail, and a tensor of their errors divided by `bound` (0 for elements that
    pass). `g`, `r` and `w` are candidate, PyTorch and float64. If float64 or PyTorch is not finite, a value of the same
    class (NaN, +inf, -inf) passes."""
    difference = (g - w).abs()
    special = ~torch.isfinite(w) | ~torch.isfinite(r)
    same = (g == w) | (g == r) | (torch.isnan(g) & (torch.isnan(w) | torch.isnan(r)))
    bad = torch.where(special, ~same, ~(difference <= bound))
    over = torch.where(bad, torch.nan_to_num(difference / bound, nan=1e300, posinf=1e300), 0.0)
    return bad, over


def _failures(
    got: torch.Tensor, reference: torch.Tensor, want: torch.Tensor, tolerance: float, absolute: float, floor: float
) -> tuple[int, int, list[int]]:
    """Returns the number of elements that fail, the flat index of the largest failure, and the flat indices of all
    failures if they are few. Called only if some elements may fail."""
    failures, worst, excess, indices = 0, 0, 0.0, list[int]()
    for start, (g, r, w) in _chunks(got, reference, want):
        bound = torch.clamp(tolerance * w.abs() + absolute, min=floor)
        bad, over = _beyond(g, r, w, bound)
        count = int(bad.sum())
        if count:
            failures += count
            indices = [*indices, *(start + bad.nonzero().reshape(-1)).tolist()] if failures <= MOST_PLACES else []
            value, index = over.max(0)
            if float(value) > excess:
                excess, worst = float(value), start + int(index)
    return failures, worst, indices


def _largest_error(got: torch.Tensor, reference: torch.Tensor, want: torch.Tensor) -> int:
    """Returns the flat index of the element with the largest error, among the elements for which float64 and PyTorch
    are finite."""
    largest, worst = -1.0, 0
    for start, (g, r, w) in _chunks(got, reference, want):
        value, index = torch.where(torch.isfinite(w) & torch.isfinite(r), (g - w).abs(), 0.0).max(0)
        if float(value) > largest:
            largest, worst = float(value), start + int(index)
    return worst


@dataclass
class _Statistics:
    """The largest values and the squared 2-norms of errors and outputs, over the elements for which float64 and PyTorch
    are finite; filled chunk by chunk."""

    error: float = 0.0
    reference_error: float = 0.0
    squared_error: float = 0.0
    reference_squared_error: float = 0.0
    squared_norm: float = 0.0
    peak: float = 0.0
    count: int = 0
    all_finite: bool = True

    @property
    def rms(self) -> float:
        return (self.squared_norm / self.count) ** 0.5 if self.count else 0.0

    def add(self, figures: list[float], count: int) -> None:
        """Adds one chunk. `figures` are the largest error, the reference's largest error, the largest value, then the
        2-norms of the errors, of the reference's errors and of the values. `count` is the number of elements."""
        error, reference_error, peak, *norms = figures
        self.error = error if math.isnan(error) else max(self.error, error)
        self.reference_error = max(self.reference_error, reference_error)
        self.peak = max(self.peak, peak)
        self.squared_error += norms[0] ** 2
        self.reference_squared_error += norms[1] ** 2
        self.squared_norm += norms[2] ** 2
        self.count += count


def _statistics(got: torch.Tensor, reference: torch.Tensor, want: torch.Tensor) -> _Statistics:
    statistics = _Statistics()
    for _, (g, r, w) in _chunks(got, reference, want):
        figures, count = _figures(g - w, r - w, w), w.numel()
        if not all(map(math.isfinite, figures)):
            # This is rare, and three times as slow: exclude elements that are not finite.
            finite = torch.isfinite(w) & torch.isfinite(r)
            statistics.all_finite = False
            count = int(finite.sum())
            figures = _figures(*(torch.where(finite, value, 0.0) for value in (g - w, r - w, w)))
        statistics.add(figures, count)
    return statistics


def _figures(mine: torch.Tensor, theirs: torch.Tensor, want: torch.Tensor) -> list[float]:
    """Returns the largest magnitude of each of the three tensors, then the 2-norm of each. A value that is not finite
    makes some of these numbers non-finite."""
    norm = torch.linalg.vector_norm
    tensors = (mine, theirs, want)
    figures = [norm(value, math.inf) for value in tensors] + [norm(value) for value in tensors]
    # One transfer, because each waits for the device.
    return torch.stack(figures).tolist()


def _chunks(
    *tensors: torch.Tensor,
) -> Iterator[tuple[int, tuple[torch.Tensor, ...]]]:
    """Yields the start index and the float64 values of each chunk of the flat tensors, so that the float64 copy of a
    huge output need not fit into memory."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), CHUNK):
        yield start, tuple(part[start : start + CHUNK].double() for part in flat)
