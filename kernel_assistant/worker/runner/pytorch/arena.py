"""Scratch memory that plans on one stream of one thread share, and that stays where it is between calls."""

from __future__ import annotations

import threading

import torch

#: Streams of a thread whose memory is kept; the one that was first used goes first.
MOST_STREAMS = 4


class _Arenas(threading.local):
    def __init__(self) -> None:
        self.of: dict[tuple[torch.device, int], torch.Tensor] = {}


_arenas = _Arenas()


def arena(device: torch.device, stream: int, size: int) -> torch.Tensor:
    """At least `size` bytes, the same memory for all callers on this stream and thread until one needs more. What
    they launch there runs in order, so they never use it at the same time."""
    of = _arenas.of
    found = of.get((device, stream))
    if found is None or found.numel() < size:
        while len(of) >= MOST_STREAMS and (device, stream) not in of:
            del of[next(iter(of))]
        # Before the larger one, which may then have its place.
        found = of.pop((device, stream), None)
        del found
        found = of[device, stream] = torch.empty(size, dtype=torch.uint8, device=device)
    return found
