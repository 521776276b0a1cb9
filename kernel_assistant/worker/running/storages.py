"""Parameters that lie in one storage keep their places in it.

cuDNN takes the weights of an LSTM or GRU as one piece of memory. PyTorch lays them out so, and copies them at each call
if they lie elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from ..applied.strided import copied
from ..runner.pytorch.residual import ALIGNMENT
from .arena import padded, span_bytes


def copies(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies with the same strides. Those that lie in one storage do so in the copy."""
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
            place = whole.as_strided(value.shape, value.stride(), (_begin(value) - begin) // size)
            made[names[index]] = place.copy_(value)
    return {name: made[name] for name in names}


def offsets(tensors: Sequence[torch.Tensor]) -> tuple[list[int], int]:
    """Byte offsets in an arena, and the bytes of all. Tensors of one storage have the distances that they have in it;
    all others are aligned, with a red zone behind them."""
    found, end = [0] * len(tensors), 0
    for group in in_one_storage(tensors):
        begin = _begin(tensors[group[0]])
        for index in group:
            found[index] = end + _begin(tensors[index]) - begin
        end += padded(_end(tensors[group[-1]]) - begin)
    return found, end


def in_one_storage(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Indices of tensors that share a storage, in the order of memory. A tensor is alone if two of its storage overlap
    or have different dtypes, or if one begins where kernels do not expect an address."""
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
