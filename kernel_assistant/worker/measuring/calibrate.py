"""Measures a device: copy and read-only bandwidth over buffers much larger than the cache, and the size of the cache;
on a CPU the rate of matrix products too.

A virtual machine reports the size of the whole processor's last-level cache, but its cores get only a part of that
cache: two cores with a cache of 480 MiB read 16 MiB at 49 GiB/s, 32 MiB at 14 and 256 MiB at 9. Copies of a task's
inputs and outputs that take four times 480 MiB would need seconds to fill, without any benefit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import torch

from .load import OtherLoad
from .statistics import median

REPEATS = 15
#: No call begins after MOST_SECONDS, except the first LEAST_REPEATS: large buffers are timed in fewer calls.
MOST_SECONDS, LEAST_REPEATS = 0.5, 5
#: A cache reads at least this many times as fast as memory. Smaller caches are not searched for, because sets take 128
#: MiB in any case.
CACHED, LEAST_CACHE = 1.5, 32 << 20
CACHE_REPEATS = 7
PRODUCT_SIZES = (512, 1024)


def calibrate(target: str, device: int, cache_bytes: int) -> dict[str, Any]:
    """Returns `copy_bandwidth` (bytes read plus written) and `read_bandwidth` in bytes/s: the best of two methods, each
    repeated several times. On a CPU, `flops_fp32` is the flop/s of a float32 product (else 0), and `cache_bytes` the
    usable part of the cache whose size the system reports.

    `quiet` is False if other processes used the CPU meanwhile: then the figures are too low to keep."""
    torch_device = torch.device("cuda", device) if target == "cuda" else torch.device("cpu")
    others = OtherLoad([os.getpid()])
    if target == "cpu":
        cache_bytes = usable_cache(cache_bytes)
    size = 4 << 30 if target == "cuda" else max(4 * cache_bytes, 1 << 27)
    source = torch.ones(size // 4, device=torch_device)
    sink = torch.empty_like(source)
    copies: list[Callable[[], object]] = [lambda: sink.copy_(source), lambda: torch.mul(source, 1.5, out=sink)]
    reads: list[Callable[[], object]] = [source.sum, source.amax]
    copy = max(2 * size / _fastest(call, torch_device) for call in copies)
    read = max(size / _fastest(call, torch_device) for call in reads)
    quiet = target == "cuda" or not others.warning()
    return {
        "copy_bandwidth": copy,
        "read_bandwidth": max(read, copy),
        "flops_fp32": product_rate() if target == "cpu" else 0.0,
        "cache_bytes": cache_bytes,
        "quiet": quiet,
    }


def product_rate() -> float:
    """Returns the flop/s of a float32 product of square matrices that fit into the cache, at the fastest of a few
    sizes."""
    return max(_rate_at(size) for size in PRODUCT_SIZES)


def _rate_at(size: int) -> float:
    one, other = torch.randn(size, size), torch.randn(size, size)
    sink = torch.empty(size, size)
    return 2.0 * size**3 / _fastest(lambda: torch.mm(one, other, out=sink), torch.device("cpu"))


def usable_cache(named_bytes: int) -> int:
    """Returns the bytes of the processor's last-level cache that this machine really gets, at most `named_bytes`: the
    largest size that reads clearly faster than memory. Other work can only make the result smaller."""
    if named_bytes <= LEAST_CACHE:
        return named_bytes
    memory = torch.ones(2 * named_bytes // 4)
    slow = _read_rate(memory)
    size = LEAST_CACHE
    while size < named_bytes and _read_rate(memory[: size // 4]) >= CACHED * slow:
        size *= 2
    return min(size, named_bytes)


def _read_rate(memory: torch.Tensor) -> float:
    """Returns the rate of reading `memory` in bytes/s: of the fastest repeat, after a first read that fills the
    cache."""
    memory.sum()
    times = []
    for _ in range(CACHE_REPEATS):
        began = time.perf_counter()
        memory.sum()
        times.append(time.perf_counter() - began)
    return memory.numel() * memory.element_size() / min(times)


def _fastest(call: Callable[[], object], device: torch.device) -> float:
    times: list[float] = []
    until = time.perf_counter() + MOST_SECONDS
    while len(times) < LEAST_REPEATS or (len(times) < REPEATS and time.perf_counter() < until):
        _wait(device)
        began = time.perf_counter()
        call()
        _wait(device)
        times.append(time.perf_counter() - began)
    return median(sorted(times)[: len(times) // 4 + 1])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
