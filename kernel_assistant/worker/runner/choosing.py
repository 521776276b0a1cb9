"""Picks the fastest of several ways to do one operation by running them on memory of its own. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from ctypes import Array, c_uint64
from typing import NamedTuple

from .cuda_driver import OUT_OF_MEMORY, CudaError, Driver, Events

Words = Array[c_uint64]
#: Every byte of the operands: small positive numbers in all floating types.
FILL = 0x3C
#: A later way, which the library expects to be slower, must be this much faster.
LEAST_GAIN = 0.97
MOST_REPEATS = 10
MILLISECONDS = 1.0
TRIALS = 3
#: A way this much slower at its first call is not looked at again.
HOPELESS = 3.0


class Way(NamedTuple):
    """One way: its name, the bytes of its workspace, and the calls, which return a status (0: done).

    `attempt(words, stream)`: `words` are the operands' addresses and, last, the workspace's.
    """

    name: str
    workspace: int
    attempt: Callable[[Words, int], int]


def choose(driver: Driver, events: Events, ways: Sequence[Way], spans: Sequence[int]) -> Way | None:
    """The fastest of `ways` (likely best first) over operands of `spans` bytes; None where all of them refuse.

    Where there is no memory for trying, the first one. Runs on the default stream and waits for it.
    """
    blocks: list[int] = []
    try:
        for size in (*spans, max(way.workspace for way in ways)):
            blocks.append(driver.allocate(size))
            driver.fill(blocks[-1], FILL, max(size, 1))
        words = (c_uint64 * len(blocks))(*blocks)
        return _fastest(driver, events, ways, words)
    except CudaError as error:
        if error.code != OUT_OF_MEMORY:
            raise
        return ways[0]
    finally:
        for block in blocks:
            driver.free(block)


def _fastest(driver: Driver, events: Events, ways: Sequence[Way], words: Words) -> Way | None:
    best, shortest = None, math.inf
    for way in ways:
        milliseconds = _time(driver, events, way, words, HOPELESS * shortest)
        if milliseconds < LEAST_GAIN * shortest:
            best, shortest = way, milliseconds
    return best


def _time(driver: Driver, events: Events, way: Way, words: Words, most: float) -> float:
    """Shortest milliseconds a call, infinite where the library refuses; one call is enough to see more than `most`."""
    if way.attempt(words, 0):
        return math.inf
    driver.synchronize()
    once = _span(driver, events, way, words, 1)
    if once > most:
        return once
    repeats = max(1, min(MOST_REPEATS, int(MILLISECONDS / max(once, 1e-3))))
    return min(_span(driver, events, way, words, repeats) for _ in range(TRIALS)) / repeats


def _span(driver: Driver, events: Events, way: Way, words: Words, repeats: int) -> float:
    events.record(events.begin)
    for _ in range(repeats):
        way.attempt(words, 0)
    events.record(events.end)
    driver.synchronize()
    return events.elapsed_ms()
