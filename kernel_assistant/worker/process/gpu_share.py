"""Limits this process to its share of a GPU's memory, where several workers use one GPU.

The limit applies to PyTorch's allocator and to arenas (memory shared with a runner), which are allocated outside of it.
CUDA contexts, libraries and the memory of a candidate's own process are not limited.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from functools import lru_cache

import torch

#: Environment variable with the share, in (0, 1]; `environment/measuring.py` has the name for those who start workers.
VARIABLE = "KERNEL_ASSISTANT_GPU_SHARE"
NO_BOUND = 1 << 62
#: Bytes of arenas by device index.
_arenas: Counter[int] = Counter()


def share_of(text: str) -> float | None:
    """Converts the text of the environment variable to a share of the GPU's memory; None for an empty text. Raises
    ValueError if it is not a number in (0, 1]."""
    if not text.strip():
        return None
    share = float(text)
    if not 0.0 < share <= 1.0:
        raise ValueError(f"{text} is not in (0, 1]")
    return share


@lru_cache(maxsize=1)
def own_share() -> float | None:
    """Returns the share of the GPU's memory that this process may use, in (0, 1]; None means no limit. An invalid value
    is ignored with a line in the worker's log."""
    try:
        return share_of(os.environ.get(VARIABLE, ""))
    except ValueError as error:
        sys.stderr.write(f"{VARIABLE} is ignored: {error}\n")
        return None


def keep_to_share(device: str) -> None:
    """Applies the limit on `device` ("cpu", "cuda:0") from now on; memory that is already allocated stays. Does nothing
    on a CPU, or without a share."""
    if device.startswith("cuda") and own_share() is not None and torch.cuda.is_available():
        _bound(torch.device(device))


def lift_share(device: str) -> None:
    """Removes the limit until the next `keep_to_share`, for measurements whose buffers have a fixed size."""
    if device.startswith("cuda") and own_share() is not None and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(1.0, torch.device(device))


def room(device: torch.device) -> int:
    """Returns the bytes of this process's share of the GPU's memory that are not in use; a very large number if there
    is no limit."""
    most = _most(device)
    return NO_BOUND if most is None else most - torch.cuda.memory_allocated(device) - _arenas[device.index or 0]


def hold_arena(size: int, device: torch.device) -> None:
    """Counts `size` bytes that the caller is about to allocate outside of PyTorch as used. Raises
    torch.OutOfMemoryError if they do not fit into the share."""
    most, number = _most(device), device.index or 0
    if most is not None:
        if torch.cuda.memory_reserved(device) + _arenas[number] + size > most:
            torch.cuda.empty_cache()
        if torch.cuda.memory_reserved(device) + _arenas[number] + size > most:
            raise torch.OutOfMemoryError(f"no {size >> 20} MiB left for the shared arena in {most >> 20} MiB")
    _arenas[number] += size
    _bound(device)


def release_arena(size: int, device: torch.device) -> None:
    _arenas[device.index or 0] -= size
    _bound(device)


def _most(device: torch.device) -> int | None:
    share = own_share()
    return None if share is None else int(share * torch.cuda.mem_get_info(device)[1])


def _bound(device: torch.device) -> None:
    """Limits PyTorch's allocator to the share minus the arenas (memory shared with runners)."""
    most = _most(device)
    if most is not None:
        left = max(most - _arenas[device.index or 0], 0)
        torch.cuda.set_per_process_memory_fraction(left / torch.cuda.mem_get_info(device)[1], device)
