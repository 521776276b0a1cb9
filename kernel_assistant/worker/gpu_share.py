"""Keeps this process to its part of a GPU's memory, where several workers share one.

PyTorch's allocator refuses what is beyond it, and so do arenas, which do not come from there. Not bounded: contexts,
libraries, and what a candidate's own process takes.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from functools import lru_cache

import torch

#: A part of the whole, in (0, 1]; `environment/measuring.py` has the name for those who start workers.
VARIABLE = "KERNEL_ASSISTANT_GPU_SHARE"
NO_BOUND = 1 << 62
#: Bytes of arenas by the device's number.
_arenas: Counter[int] = Counter()


def share_of(text: str) -> float | None:
    """None where there is no text. Raises ValueError for what is no part of a whole."""
    if not text.strip():
        return None
    found = float(text)
    if not 0.0 < found <= 1.0:
        raise ValueError(f"{text} is not in (0, 1]")
    return found


@lru_cache(maxsize=1)
def own_share() -> float | None:
    """None: no bound. What the variable cannot mean is left alone, and the worker's log says so once."""
    try:
        return share_of(os.environ.get(VARIABLE, ""))
    except ValueError as error:
        sys.stderr.write(f"{VARIABLE} is ignored: {error}\n")
        return None


def keep_to_share(device: str) -> None:
    """From now on; whatever is allocated already stays. Nothing happens on a CPU, or without a share."""
    if device.startswith("cuda") and own_share() is not None and torch.cuda.is_available():
        _bound(torch.device(device))


def lift_share(device: str) -> None:
    """Until `keep_to_share`: what is measured with buffers of a fixed size has them for a moment."""
    if device.startswith("cuda") and own_share() is not None and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(1.0, torch.device(device))


def room(device: torch.device) -> int:
    """Bytes of the share that nothing holds."""
    most = _most(device)
    return NO_BOUND if most is None else most - torch.cuda.memory_allocated(device) - _arenas[device.index or 0]


def hold_arena(size: int, device: torch.device) -> None:
    """Counts `size` bytes that are about to be allocated outside of PyTorch. Raises torch.OutOfMemoryError where the
    share has no room for them."""
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
    """Arenas are taken off what PyTorch may have."""
    most = _most(device)
    if most is not None:
        left = max(most - _arenas[device.index or 0], 0)
        torch.cuda.set_per_process_memory_fraction(left / torch.cuda.mem_get_info(device)[1], device)
