"""Tasks to play: sampled, of one split, small enough to be opened quickly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from kernel_assistant.records import KernelTask, Numerics, OpGraph
from kernel_assistant.records.canonical import Canonical, canonical
from kernel_assistant.source.build import build_task
from kernel_assistant_training.synth import fitted, module_text, sample, split
from kernel_assistant_training.synth.memory import traffic

#: Bytes of inputs and outputs together at most; `fitted` gives the least.
MOST_BYTES = {"cpu": 16 << 20, "cuda": 128 << 20}
LEVELS = 5


@dataclass(frozen=True)
class Task:
    """`key` is the canonical graph's, `level` the number of its steps."""

    key: str
    level: int
    graph: OpGraph
    canonical: Canonical
    kernel_task: KernelTask


def of_graph(graph: OpGraph, target: str, level: int = 1) -> Task:
    task = canonical(graph)
    key = task.key()
    described = build_task(
        f"/nowhere/task_{key}.py", target=target, numerics=Numerics.kernelbench, text=module_text(graph)
    )
    return Task(key, level, graph, task, described)


def tasks(target: str, count: int, random: Random, *, most_level: int = LEVELS, wanted: str = "train") -> list[Task]:
    """`count` different ones of a split, up to so many steps; the same for the same random numbers."""
    return list(islice(_drawn(target, random, most_level, wanted), count))


def most_level(iteration: int, curriculum: int) -> int:
    """Of iteration number `iteration` (from 1): one step at first, all five from number `curriculum` on."""
    if curriculum <= 1:
        return LEVELS
    return min(LEVELS, 1 + (iteration - 1) * (LEVELS - 1) // (curriculum - 1))


def _drawn(target: str, random: Random, most: int, wanted: str) -> Iterator[Task]:
    seen: set[str] = set()
    while True:
        level = random.randint(1, most)
        graph = fitted(sample(random, level), target, random)
        if graph is None or traffic(graph) > MOST_BYTES[target]:
            continue
        task = canonical(graph)
        if split(task) == wanted and task.key() not in seen:
            seen.add(task.key())
            yield of_graph(graph, target, level)
