"""How many candidates the generator writes and parses in a second, on one core."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from bench.figures import Figure, Settings
from bench.subjects import norm_environment
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.search.search import initial, neighbours

T = TypeVar("T")


def measure(settings: Settings) -> list[Figure]:
    with norm_environment(settings.target) as environment:
        graph, device = environment.graph, environment.device
    first = initial(graph, settings.target, device)
    schedules = list(dict.fromkeys([*first, *neighbours(graph, first[0], device)]))
    seconds = settings.count(5, 1)
    emitted, candidates = _rate(lambda index: emit(graph, schedules[index % len(schedules)]), seconds)
    read, parsed = _rate(lambda index: parse(candidates[index % len(candidates)]), seconds)
    if any(each is None for each in parsed):
        raise RuntimeError("a candidate of the generator is not read back")
    how = f"{len(schedules)} schedules of a graph with {len(graph.nodes)} nodes, one core"
    return [
        Figure("candidates written", emitted, "/s", how, ("≥", 500)),
        Figure("candidates read back", read, "/s", "each proved by writing it again", ("≥", 500)),
    ]


def _rate(call: Callable[[int], T], seconds: float) -> tuple[float, list[T]]:
    """Calls per second of processor time, and their results."""
    results: list[T] = []
    began = time.process_time()
    while (elapsed := time.process_time() - began) < seconds:
        results.append(call(len(results)))
    return len(results) / elapsed, results
