"""Measured ceilings of a device: copy and read-only bandwidth over buffers well beyond the cache."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from .statistics import median

REPEATS = 15


def calibrate(target: str, device: int, cache_bytes: int) -> dict[str, Any]:
    """Bytes/s for copying (read plus written) and for reading: best quarter of the repeats, largest of three ways."""
    place = torch.device("cuda", device) if target == "cuda" else torch.device("cpu")
    size = max(8 * cache_bytes, 1 << 28) if target == "cuda" else max(4 * cache_bytes, 1 << 27)
    source = torch.randn(size // 4, device=place)
    sink = torch.empty_like(source)
    copies: list[Callable[[], object]] = [lambda: sink.copy_(source), lambda: torch.mul(source, 1.5, out=sink)]
    reads: list[Callable[[], object]] = [source.sum, source.amax]
    return {
        "copy_bandwidth": max(2 * size / _fastest(call, place) for call in copies),
        "read_bandwidth": max(size / _fastest(call, place) for call in reads),
    }


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
