"""What counts as close enough to a float64 run of the reference. Pure functions on tensors.

A candidate passes if every element and the whole output are within bounds:

    |got - want| ≤ max(tol · (|want| + min(1, rms(want))), 2 · max|reference - want|)      element by element
    ‖got - want‖₂ ≤ max(tol · ‖want‖₂, 2 · ‖reference - want‖₂)                            over the output

`want` is float64, `reference` is PyTorch in the task's dtype. The absolute part scales with the output, so that zeros
never pass for small outputs (a softmax over 393,216 columns is 2.5e-6 everywhere). `strict` sets tol to one rounding
of the output dtype, so that only twice PyTorch's own error is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

CHUNK = 1 << 25
TOLERANCE = {
    "kernelbench": {torch.float64: 1e-8, torch.float32: 1e-4, torch.bfloat16: 1e-2, torch.float16: 1e-2},
    "paper": {torch.float64: 1e-8, torch.float32: 1e-2, torch.bfloat16: 1e-2, torch.float16: 1e-2},
    "strict": {
        dtype: 2 * torch.finfo(dtype).eps for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    },
}


@dataclass
class Comparison:
    """One output compared. Errors are absolute maxima and squared sums; `worst` is the flat index that failed most.

    `half_ulp` is half a unit in the last place of the largest value, in the output's dtype.
    """

    passed: bool
    error: float
    reference_error: float
    squared_error: float
    squared_norm: float
    failures: int
    worst: int
    why: str
    half_ulp: float = 0.0


def compare(got: torch.Tensor, reference: torch.Tensor, want: torch.Tensor, policy: str) -> Comparison:
    """Compare a candidate's output with the reference and float64. All of one shape; `want` float64 if floating."""
    if not got.dtype.is_floating_point:
        return _compare_exact(got, reference)
    tolerance = TOLERANCE[policy][got.dtype]
    stats = _Statistics(got, reference, want)
    absolute = tolerance * min(1.0, stats.rms)
    floor = 2 * stats.reference_error
    failures, worst, excess = 0, 0, 0.0
    for start, (g, r, w) in _chunks(got, reference, want):
        bound = torch.clamp(tolerance * w.abs() + absolute, min=floor)
        bad, over = _beyond(g, r, w, bound)
        count = int(bad.sum())
        if count:
            failures += count
            value, index = over.max(0)
            if float(value) > excess:
                excess, worst = float(value), start + int(index)
    norm_bound = max(tolerance**2 * stats.squared_norm, 4 * stats.reference_squared_error)
    drifted = stats.squared_error > norm_bound
    if drifted and not failures:
        worst = stats.worst
    return Comparison(
        passed=not failures and not drifted,
        error=stats.error,
        reference_error=stats.reference_error,
        squared_error=stats.squared_error,
        squared_norm=stats.squared_norm,
        failures=failures,
        worst=worst,
        why="value" if failures else "norm" if drifted else "",
        half_ulp=stats.peak * torch.finfo(got.dtype).eps / 2,
    )


def _compare_exact(got: torch.Tensor, reference: torch.Tensor) -> Comparison:
    different = (got != reference).reshape(-1)
    failures = int(different.sum())
    worst = int(different.to(torch.uint8).argmax()) if failures else 0
    return Comparison(not failures, float(bool(failures)), 0.0, 0.0, 0.0, failures, worst, "value" if failures else "")


def _beyond(
    g: torch.Tensor, r: torch.Tensor, w: torch.Tensor, bound: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which elements fail and by how much. Where float64 or PyTorch is not finite, the same class of value passes."""
    difference = (g - w).abs()
    special = ~torch.isfinite(w) | ~torch.isfinite(r)
    same = (g == w) | (g == r) | (torch.isnan(g) & (torch.isnan(w) | torch.isnan(r)))
    bad = torch.where(special, ~same, ~(difference <= bound))
    over = torch.where(bad, torch.nan_to_num(difference / bound, nan=1e300, posinf=1e300), 0.0)
    return bad, over


class _Statistics:
    """Maxima and squared sums over the elements where float64 and PyTorch are finite."""

    def __init__(self, got: torch.Tensor, reference: torch.Tensor, want: torch.Tensor) -> None:
        self.error = self.reference_error = self.squared_error = self.reference_squared_error = 0.0
        self.squared_norm, self.peak, self.worst, count = 0.0, 0.0, 0, 0
        for start, (g, r, w) in _chunks(got, reference, want):
            finite = torch.isfinite(w) & torch.isfinite(r)
            mine = torch.where(finite, (g - w).abs(), 0.0)
            theirs = torch.where(finite, (r - w).abs(), 0.0)
            norm = torch.where(finite, w, 0.0)
            peak, index = mine.max(0)
            figures = [peak, index, theirs.max(), (mine * mine).sum(), (theirs * theirs).sum(), (norm * norm).sum()]
            figures += [norm.abs().max(), finite.sum()]
            # One transfer: each waits for the device.
            error, at, reference_error, *squares, largest, many = torch.stack(
                [each.double() for each in figures]
            ).tolist()
            if not error <= self.error:
                self.error, self.worst = error, start + int(at)
            self.reference_error = max(self.reference_error, reference_error)
            self.squared_error += squares[0]
            self.reference_squared_error += squares[1]
            self.squared_norm += squares[2]
            self.peak = max(self.peak, largest)
            count += int(many)
        self.rms = (self.squared_norm / count) ** 0.5 if count else 0.0


def _chunks(
    *tensors: torch.Tensor,
) -> Iterator[tuple[int, tuple[torch.Tensor, ...]]]:
    """Flat float64 chunks with their start, so that an output of billions of elements fits beside itself."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), CHUNK):
        yield start, tuple(part[start : start + CHUNK].double() for part in flat)
