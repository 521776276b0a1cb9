"""Tensors whose elements share memory: expanded dimensions (stride 0), windows that overlap. Nothing can be written
into such a tensor element by element; what can be written is the range of memory that it takes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements may share memory. Strides are in elements; a stride that is not larger than what the smaller
    ones reach counts as sharing, although some such elements happen to lie apart."""
    reach = 0
    for stride, size in sorted(pair for pair in zip(strides, shape, strict=True) if pair[1] > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def span(tensor: torch.Tensor) -> int:
    """Elements from the first to the last one of a strided tensor, gaps included."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def writable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, or the flat range of memory that it takes if elements share memory."""
    if not overlaps(tensor.shape, tensor.stride()):
        return tensor
    return tensor.as_strided((span(tensor),), (1,))


def copy_as_it_lies(target: torch.Tensor, values: torch.Tensor) -> None:
    """Copy values into a tensor of the same shape; where its elements share memory, both have the same strides."""
    writable(target).copy_(writable(values) if overlaps(target.shape, target.stride()) else values)


def laid_out(values: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A copy with these strides. Along a dimension of stride 0 all values are the first one."""
    whole = values.shape
    for dim, stride in enumerate(strides):
        values = values.narrow(dim, 0, min(1, whole[dim])) if stride == 0 else values
    empty = torch.empty_strided(values.shape, strides, dtype=values.dtype, device=values.device)
    return empty.copy_(values).expand(whole)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides. `clone` gives other ones where there are gaps, or where elements share memory."""
    return laid_out(tensor, tensor.stride())
