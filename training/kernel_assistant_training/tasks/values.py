"""Checks a candidate's outputs: they must be tensors, finite, repeatable, not constant, dependent on the inputs, and no
copy of an input."""

from __future__ import annotations

from typing import Any

import torch

from kernel_assistant_training.tasks.records import Reason
from kernel_assistant_training.tasks.running import Rejected, Running

REPEATS = 3
#: Two outputs are indistinguishable if they differ by at most this share of the largest magnitude.
ALIKE = 1e-2
#: An output is constant if its range is at most this share of its largest magnitude.
FLAT = 1e-6
#: The tolerance for torch.compile, which may round differently.
ROUNDED = 2e-2


def check_values(running: Running) -> None:
    """Raises Rejected, with the reason, if the outputs are no tensors, not finite, random, constant, copies of inputs,
    or the same for other inputs."""
    inputs = running.inputs(1)
    first = running.outputs(inputs)
    if not any(one.numel() for one in first) or not all(one.layout is torch.strided for one in first):
        raise Rejected(Reason.no_tensor)
    check_finite(first)
    kept = [one.clone() for one in first]
    for seed in range(1, REPEATS):
        again = running.outputs(inputs, seed)
        if len(again) != len(kept) or not all(map(torch.equal, kept, again)):
            raise Rejected(Reason.random)
    if all(_flat(one) for one in kept):
        raise Rejected(Reason.constant)
    given = [one for one in inputs if isinstance(one, torch.Tensor)]
    if all(any(_equal(one, other) for other in given) for one in kept):
        raise Rejected(Reason.copy)
    for seed in (2, 3):
        if alike(kept, running.outputs(running.inputs(seed)), ALIKE):
            raise Rejected(Reason.same_output)


def check_finite(outputs: list[torch.Tensor]) -> None:
    """Raises Rejected, with the reason `not_finite`, if an output is not finite."""
    if not all(one.isfinite().all() for one in outputs if one.is_floating_point() or one.is_complex()):
        raise Rejected(Reason.not_finite)


def alike(some: list[torch.Tensor], others: list[Any], share: float) -> bool:
    """Whether all outputs differ by at most the fraction `share` of their largest magnitude. Integers must be equal."""
    if len(some) != len(others) or any(a.shape != b.shape for a, b in zip(some, others, strict=True)):
        return False
    return all(_near(a, b, share) for a, b in zip(some, others, strict=True))


def _near(one: torch.Tensor, other: torch.Tensor, share: float) -> bool:
    if not one.is_floating_point() or one.numel() == 0:
        return torch.equal(one, other)
    one, other = one.float(), other.float()
    return bool((one - other).abs().max() <= share * one.abs().max())


def _flat(one: torch.Tensor) -> bool:
    """Whether all elements are practically equal. A tensor with a single element counts as not flat."""
    if one.numel() <= 1:
        return one.numel() == 0
    if one.is_complex():
        one = torch.view_as_real(one)
    wide = one.double()
    return bool(wide.max() - wide.min() <= FLAT * wide.abs().max())


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)
