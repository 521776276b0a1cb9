"""Holds scratch memory that all plans on one stream of one thread share, and that keeps its address between calls."""

from __future__ import annotations

import threading
from typing import TypeVar

import torch

#: Streams of a thread whose memory is kept; the one that was first used goes first.
MOST_STREAMS = 4
K = TypeVar("K")
V = TypeVar("V")


class _Arenas(threading.local):
    def __init__(self) -> None:
        self.of: dict[tuple[int | None, int], torch.Tensor] = {}


_arenas = _Arenas()


def arena(device: torch.device, stream: int, size: int) -> torch.Tensor:
    """Returns a uint8 tensor of at least `size` bytes. All callers on this stream and thread get the same tensor, until
    one needs more. Their launches run in order on the stream, so no two of them use the memory at the same time."""
    of, key = _arenas.of, (device.index, stream)
    memory = of.get(key)
    if memory is None or memory.numel() < size:
        # Freed before the larger one is allocated, which may get its memory.
        del memory
        of.pop(key, None)
        memory = torch.empty(size, dtype=torch.uint8, device=device)
        keep(of, key, memory)
    return memory


def keep(of: dict[K, V], key: K, value: V) -> None:
    """Stores `value` in `of` under `key`. If `of` then has more than MOST_STREAMS entries, one for each stream, removes
    the oldest one."""
    while len(of) >= MOST_STREAMS and key not in of:
        del of[next(iter(of))]
    of[key] = value
