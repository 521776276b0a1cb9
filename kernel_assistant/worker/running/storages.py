"""Copies parameters so that those that share a storage keep their distances from each other.

cuDNN takes the weights of an LSTM or GRU as one piece of memory. PyTorch lays the weights out like that; if they are
scattered, it copies them together at each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from ..applied.strided import copied
from ..runner.pytorch.residual import ALIGNMENT
from .arena import padded, span_bytes


def copies(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns copies of the tensors under the same names, with the same strides. Tensors that share a storage share one
    in the copy, as far as `in_one_storage` groups them."""
    names, values = list(tensors), list(tensors.values())
    made: dict[str, torch.Tensor] = {}
    for group in in_one_storage(values):
        if len(group) == 1:
            made[names[group[0]]] = copied(values[group[0]])
            continue
        begin, end = _begin(values[group[0]]), _end(values[group[-1]])
        size = values[group[0]].element_size()
        whole = values[group[0]].new_empty((end - begin) // size)
        for index in group:
            value = values[index]
            view = whole.as_strided(value.shape, value.stride(), (_begin(value) - begin) // size)
            made[names[index]] = view.copy_(value)
    return {name: made[name] for name in names}


def offsets(tensors: Sequence[torch.Tensor]) -> tuple[list[int], int]:
    """Returns the byte offset of each tensor in an arena (memory shared with a runner), and the number of bytes of all
    together. Tensors that share a storage keep their distances from each other; all others are aligned, with a red zone
    (unused bytes) after each."""
    byte_offsets, end = [0] * len(tensors), 0
    for group in in_one_storage(tensors):
        begin = _begin(tensors[group[0]])
        for index in group:
            byte_offsets[index] = end + _begin(tensors[index]) - begin
        end += padded(_end(tensors[group[-1]]) - begin)
    return byte_offsets, end


def in_one_storage(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Groups tensors that share a storage. Returns lists of indices into `tensors`, each in the order of memory. The
    tensors of a storage get groups of their own if two of them overlap, if their dtypes differ, or if the distance
    between two is not aligned.
    """
    by_storage: dict[int, list[int]] = {}
    for index, tensor in enumerate(tensors):
        by_storage.setdefault(tensor.untyped_storage().data_ptr() or -1 - index, []).append(index)
    groups: list[list[int]] = []
    for group in by_storage.values():
        group.sort(key=lambda index: _begin(tensors[index]))
        first = _begin(tensors[group[0]])
        apart = all(_end(tensors[one]) <= _begin(tensors[other]) for one, other in pairwise(group))
        aligned = not any((_begin(tensors[index]) - first) % ALIGNMENT for index in group)
        if apart and aligned and len({tensors[index].dtype for index in group}) == 1:
            groups.append(group)
        else:
            groups += ([index] for index in group)
    return groups


def _begin(tensor: torch.Tensor) -> int:
    return int(tensor.storage_offset()) * tensor.element_size()


def _end(tensor: torch.Tensor) -> int:
    return _begin(tensor) + span_bytes(tensor)
