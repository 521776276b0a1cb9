"""Measured ceilings of a device: copy and read-only bandwidth over buffers well beyond the cache."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import torch

from .load import OtherLoad
from .statistics import median

REPEATS = 15


def calibrate(target: str, device: int, cache_bytes: int) -> dict[str, Any]:
    """Bytes/s for copying (read plus written) and for reading: the best of two ways and of some repeats each.

    `quiet` is False if other processes used the CPU meanwhile: then the figures are too low to keep.
    """
    place = torch.device("cuda", device) if target == "cuda" else torch.device("cpu")
    others = OtherLoad([os.getpid()])
    size = 4 << 30 if target == "cuda" else max(4 * cache_bytes, 1 << 27)
    source = torch.randn(size // 4, device=place)
    sink = torch.empty_like(source)
    copies: list[Callable[[], object]] = [lambda: sink.copy_(source), lambda: torch.mul(source, 1.5, out=sink)]
    reads: list[Callable[[], object]] = [source.sum, source.amax]
    copy = max(2 * size / _fastest(call, place) for call in copies)
    read = max(size / _fastest(call, place) for call in reads)
    quiet = target == "cuda" or not others.warning()
    return {"copy_bandwidth": copy, "read_bandwidth": max(read, copy), "quiet": quiet}


def _fastest(call: Callable[[], object], place: torch.device) -> float:
    times = []
    for _ in range(REPEATS):
        _wait(place)
        began = time.perf_counter()
        call()
        _wait(place)
        times.append(time.perf_counter() - began)
    return median(sorted(times)[: REPEATS // 4 + 1])


def _wait(place: torch.device) -> None:
    if place.type == "cuda":
        torch.cuda.synchronize(place)
