"""Decides whether a candidate's indices, such as those of an argmax, are correct. A pure function on tensors.

An index that is not PyTorch's passes if its value, in float64, is as good as the best up to rounding:

    |exact[got] - exact[best]| ≤ max(2 ε · |exact[best]|, 4 · max|values - exact|)      the maximum over its row

`best` is the choice in float64, `values` what PyTorch chose from: two values may err by twice PyTorch's error each.
Where PyTorch computed its values without any error, in less than float64, nothing is rounded, and the index has to be
exact. The index also has to be exact between equal values, if the operator promises the first of them. What an operator
promises about all indices (no element is chosen twice, or none after its own position) is required in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .choices import Choice, choices_of
from .numerics import CHUNK, TOLERANCE, OutputComparison

if TYPE_CHECKING:
    from ..opening.open_task import OpenTask
    from ..user_module.inputs import Args, Kwargs


def compare_choice(got: torch.Tensor, choice: Choice) -> OutputComparison:
    """Compares a candidate's indices `got` with those that PyTorch chose, such as the result of an argmax. An index as
    good as PyTorch's passes. `got` has the elements of `choice.index`, in any shape."""
    index = got.reshape(choice.index.shape)
    bad = (index != choice.index) & ~_as_good(index, choice)
    if choice.chooser.distinct:
        bad |= (index != choice.index) & _repeated(index, choice.dim)
    flat = bad.reshape(-1)
    failures = int(flat.sum())
    worst = int(flat.to(torch.uint8).argmax()) if failures else 0
    return OutputComparison(
        not failures, float(bool(failures)), 0.0, 0.0, 0.0, failures, worst, "value" if failures else ""
    )


def part_chosen(
    task: OpenTask, call: tuple[Args, Kwargs], position: int, reference: torch.Tensor, part: torch.Tensor, start: int
) -> bool:
    """Whether output number `position` holds correctly chosen indices although its `part` from the flat index `start`
    on differs from PyTorch's `reference` for this call. False if the output is no tensor of chosen indices."""
    choices = choices_of(task, *call)
    choice = choices[position] if position < len(choices) else None
    if choice is None:
        return False
    whole = reference.flatten().clone()
    whole[start : start + part.numel()] = part
    return compare_choice(whole, choice).passed


def _as_good(index: torch.Tensor, choice: Choice) -> torch.Tensor:
    """Returns a boolean mask: which elements of `index` are valid and select a value as good as the best."""
    dim, values = choice.dim, choice.values
    # Integers are exact as they are; float64 does not hold all of them.
    exact = choice.exact if values.dtype.is_floating_point else values
    inside = (index >= 0) & (index < exact.shape[dim])
    if choice.chooser.upto:
        inside &= index <= _positions(index, dim)
    there = index.clamp(0, exact.shape[dim] - 1)
    by_value = choice.chooser.by_value and values.dtype.is_floating_point
    best = _wide(exact.gather(dim, choice.exact_index if by_value else choice.index))
    mine = _wide(exact.gather(dim, there))
    near = _same(mine, best)
    if values.dtype.is_floating_point:
        near |= (mine - best).abs() <= _bound(best, choice)
    if not choice.chooser.first:
        return inside & near
    # Equal values in both precisions: which of them is promised.
    tied = _same(mine, _wide(exact.gather(dim, choice.index)))
    tied &= _same(values.gather(dim, there), values.gather(dim, choice.index))
    return inside & near & ~tied


def _bound(best: torch.Tensor, choice: Choice) -> torch.Tensor:
    """Returns by how much a chosen floating value may be worse than the best one in its row (the values along the
    dimension of the choice); 0 where PyTorch's values are exact."""
    dtype = choice.values.dtype
    errors = _errors_of_rows(choice)
    if not (dtype == torch.float64 or bool(errors.any())):
        return torch.zeros_like(best)
    return torch.maximum(TOLERANCE["strict"][dtype] * best.abs(), 4 * errors)


def _errors_of_rows(choice: Choice) -> torch.Tensor:
    """Returns PyTorch's largest error against float64 in each row, that is, along the dimension of the choice. A few
    rows are handled at a time, because a float64 copy of all may not fit into memory."""
    values, exact, dim = choice.values, choice.exact, choice.dim
    across = max((other for other in range(values.dim()) if other != dim), key=values.shape.__getitem__, default=None)
    if across is None:
        return _largest_error(values, exact, dim)
    pieces = min(-(-values.numel() // CHUNK), values.shape[across])
    pairs = zip(values.chunk(pieces, across), exact.chunk(pieces, across), strict=True)
    return torch.cat([_largest_error(*pair, dim) for pair in pairs], across)


def _largest_error(values: torch.Tensor, exact: torch.Tensor, dim: int) -> torch.Tensor:
    errors = (values.double() - exact.double()).abs()
    return torch.where(torch.isfinite(errors), errors, 0.0).amax(dim, keepdim=True)


def _wide(chosen: torch.Tensor) -> torch.Tensor:
    """Returns real numbers as float64, and integers unchanged, because float64 does not hold all of them."""
    return chosen.double() if chosen.dtype.is_floating_point else chosen


def _same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a == b) | (torch.isnan(a) & torch.isnan(b))


def _positions(index: torch.Tensor, dim: int) -> torch.Tensor:
    shape = [-1 if position == dim else 1 for position in range(index.dim())]
    return torch.arange(index.shape[dim], device=index.device).reshape(shape)


def _repeated(index: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns a boolean mask that is True for all elements of a row (along `dim`) in which an index occurs twice."""
    ordered = index.sort(dim).values
    twice = (ordered.diff(dim=dim) == 0).any(dim, keepdim=True)
    return twice.expand_as(index)
