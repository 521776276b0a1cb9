"""Copies what a candidate's forward returned to the memory that the judge compares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

EXACT = (torch.Tensor, torch.nn.Parameter)


class OutputError(ValueError):
    """The candidate's outputs differ from the reference's in structure, type, dtype, shape, strides or device."""


def deliver(result: Any, destinations: Sequence[torch.Tensor]) -> None:
    """Copies the tensors of `result`, in pytree order, to `destinations`. Raises OutputError if their number, types,
    dtypes or shapes differ.

    A lazy subclass would compute while the judge compares, so only plain tensors and parameters are accepted.
    """
    outputs = (result,) if type(result) is torch.Tensor else tensors_in(result)
    if len(outputs) != len(destinations):
        raise OutputError(f"forward returned {len(outputs)} tensors, the reference {len(destinations)}")
    for value, destination in zip(outputs, destinations, strict=True):
        if type(value) not in EXACT or value.dtype != destination.dtype or value.shape != destination.shape:
            raise OutputError(f"forward returned {describe(value)}, the reference {describe(destination)}")
        destination.copy_(value)


def tensors_in(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def check_layout(result: Any, destinations: Sequence[torch.Tensor], shared: Sequence[tuple[int, int]]) -> None:
    """Checks the device and the strides of each output, and that each has memory of its own; too slow for every call.
    Raises OutputError.

    `shared` are the address ranges [low, high) of the judge's memory. An output there is refused: copying it would take
    no time, although the time of a copy is subtracted from the measured time.
    """
    for value, destination in zip(tensors_in(result), destinations, strict=True):
        if value.device != destination.device or value.layout is not torch.strided:
            raise OutputError(
                f"an output is on {value.device} ({value.layout}), the reference's on {destination.device}"
            )
        if value.numel() and not value.is_contiguous() and not _same_strides(value, destination):
            raise OutputError(
                f"an output has strides {list(value.stride())}, the reference's {list(destination.stride())}"
            )
        if not value.is_contiguous() and not _same_strides(value, destination):
            raise OutputError("an output has no elements of its own")
        if value.numel() and not value.untyped_storage().data_ptr():
            raise OutputError("an output has no storage")
        address = value.data_ptr()
        if any(low <= address < high for low, high in shared):
            raise OutputError("an output lies in the judge's memory: allocate it")


def _same_strides(one: torch.Tensor, other: torch.Tensor) -> bool:
    rows = zip(one.shape, one.stride(), other.stride(), strict=True)
    return all(size <= 1 or mine == theirs for size, mine, theirs in rows)


def describe(value: torch.Tensor) -> str:
    return f"{type(value).__name__} {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
