"""Handles tensors whose elements share memory: expanded dimensions (stride 0), windows that overlap. Such a tensor
cannot be written element by element; its whole range of memory can be written instead."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements may share memory; strides are in elements. The answer is also True for some tensors whose
    elements lie apart: a stride counts as sharing if it does not exceed the distance that the dimensions with smaller
    strides span."""
    reach = 0
    for stride, size in sorted(pair for pair in zip(strides, shape, strict=True) if pair[1] > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def span(tensor: torch.Tensor) -> int:
    """Returns the number of elements in memory from the first to the last element of a strided tensor, gaps
    included."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def writable(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor itself; or, if elements share memory, a 1-D tensor over the memory range that it takes."""
    if not overlaps(tensor.shape, tensor.stride()):
        return tensor
    return tensor.as_strided((span(tensor),), (1,))


def copy_as_it_lies(target: torch.Tensor, values: torch.Tensor) -> None:
    """Copies `values` into `target`, which has the same shape. If elements of `target` share memory, both must have the
    same strides."""
    writable(target).copy_(writable(values) if overlaps(target.shape, target.stride()) else values)


def laid_out(values: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """Returns a copy of `values` with these strides, in elements. Along a dimension of stride 0 the first value is used
    for all."""
    whole = values.shape
    for dim, stride in enumerate(strides):
        values = values.narrow(dim, 0, min(1, whole[dim])) if stride == 0 else values
    empty = torch.empty_strided(values.shape, strides, dtype=values.dtype, device=values.device)
    return empty.copy_(values).expand(whole)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy with the same strides. `clone` would change the strides of a tensor with gaps or with elements
    that share memory."""
    return laid_out(tensor, tensor.stride())
