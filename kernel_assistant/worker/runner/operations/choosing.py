"""Picks the fastest of several algorithms for one operation by running them on memory allocated for the trial. Standard
library only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from ctypes import Array, c_uint64
from typing import NamedTuple

from ..capture import captured
from ..cuda_driver import OUT_OF_MEMORY, CudaError, Driver, Events

Words = Array[c_uint64]
#: Every byte of the operands: this gives small positive numbers in all floating types.
FILL = 0x3C
#: A later algorithm, which the library expects to be slower, is chosen only below this share of the best time.
LEAST_GAIN = 0.97
#: The same for the first algorithm that adds in another order each time, so that its results differ in their last bits.
LEAST_GAIN_OF_IRREPRODUCIBLE = 0.67
MOST_REPEATS = 20
#: Most plans of cuDNN that are built for a graph: building one takes 25 ms, and the first ones of the heuristics are
#: nearly always the best. On an H200 the best of four took 1% longer than the best of eight, the first one 8% (52
#: convolutions).
MOST_PLANS = 5
MILLISECONDS = 1.0
TRIALS = 3
#: An algorithm that is slower than the best by this factor at its first call is not timed further.
HOPELESS = 3.0


class Wanted(NamedTuple):
    """Selects the algorithms of an operation that are built: only the one called `name` if that is not "", else at most
    `plans` execution plans of each cuDNN graph."""

    plans: int = MOST_PLANS
    name: str = ""


class Algorithm(NamedTuple):
    """One algorithm of a library operation: its name, the bytes of its workspace, and `attempt`, which runs it and
    returns a status (0: done).

    `attempt(words, stream)`: `words` are the addresses of the operands and, last, of the workspace. `reproducible` says
    whether the algorithm gives the same bits each time."""

    name: str
    workspace: int
    attempt: Callable[[Words, int], int]
    reproducible: bool = True


def choose(
    driver: Driver, events: Events, ways: Sequence[Algorithm], spans: Sequence[int]
) -> tuple[Algorithm | None, bool]:
    """Returns the fastest of the algorithms `ways` for operands of `spans` bytes, None if the library refuses all of
    them; and whether `ways` were run. `ways` lists reproducible algorithms first, and within each group the likely
    fastest first.

    If there is no memory for the trial, returns the first algorithm. Raises CudaError. Waits until the device has
    finished."""
    blocks: list[int] = []
    try:
        for size in (*spans, max(way.workspace for way in ways)):
            blocks.append(driver.allocate(size))
            driver.fill(blocks[-1], FILL, max(size, 1))
        words = (c_uint64 * len(blocks))(*blocks)
        return _fastest(driver, events, ways, words), True
    except CudaError as error:
        if error.code != OUT_OF_MEMORY:
            raise
        return ways[0], False
    finally:
        for block in blocks:
            driver.free(block)


def _fastest(driver: Driver, events: Events, ways: Sequence[Algorithm], words: Words) -> Algorithm | None:
    if len(ways) == 1:
        status = ways[0].attempt(words, 0)
        driver.synchronize()
        return None if status else ways[0]
    best, shortest = None, math.inf
    for way in ways:
        milliseconds = _time(driver, events, way, words, HOPELESS * shortest)
        is_first = not way.reproducible and (best is None or best.reproducible)
        if milliseconds < (LEAST_GAIN_OF_IRREPRODUCIBLE if is_first else LEAST_GAIN) * shortest:
            best, shortest = way, milliseconds
    return best


def _time(driver: Driver, events: Events, way: Algorithm, words: Words, most: float) -> float:
    """Returns the shortest time of a call in milliseconds; infinite if the library refuses the call. If the first call
    takes more than `most` milliseconds, its time is returned. Calls are timed in a CUDA graph if the library can be
    captured: otherwise the host's delays would make the time of short calls vary."""
    if way.attempt(words, 0):
        return math.inf
    driver.synchronize()
    once = _span(driver, events, way, words, 1)
    if once > most:
        return once
    repeats = max(1, min(MOST_REPEATS, int(MILLISECONDS / max(once, 1e-3))))
    graph = captured(driver, lambda stream: _repeated(way, words, stream, repeats))
    if graph is not None:
        return min(graph.milliseconds(events) for _ in range(TRIALS)) / repeats
    return min(_span(driver, events, way, words, repeats) for _ in range(TRIALS)) / repeats


def _repeated(way: Algorithm, words: Words, stream: int, repeats: int) -> None:
    for _ in range(repeats):
        status = way.attempt(words, stream)
        if status:
            raise CudaError(way.name, status, "refused")


def _span(driver: Driver, events: Events, way: Algorithm, words: Words, repeats: int) -> float:
    events.record(events.begin)
    for _ in range(repeats):
        way.attempt(words, 0)
    events.record(events.end)
    driver.synchronize()
    return events.elapsed_ms()
