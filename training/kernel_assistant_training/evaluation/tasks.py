"""Makes the tasks that training evaluates: tasks of one split that are small enough to open quickly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kernel_assistant.records import KernelTask, Numerics, OpGraph
from kernel_assistant.records.canonical import Canonical, canonical
from kernel_assistant.source.build import build_task
from kernel_assistant_training.synth import fitted, module_text, split
from kernel_assistant_training.synth.memory import traffic
from kernel_assistant_training.synth.narrow import Narrow

#: Largest sum of input and output bytes; `fitted` sets the smallest.
MOST_BYTES = {"cpu": 16 << 20, "cuda": 128 << 20}
#: Number of graphs to try: a narrow set of tasks may have a handful of keys in a split, or none.
TRIES = 1500


@dataclass(frozen=True)
class Task:
    """A task with its graph. `key` is the key of the canonical graph; `level` is the number of synthesis steps that
    made it."""

    key: str
    level: int
    graph: OpGraph
    canonical: Canonical
    kernel_task: KernelTask


def of_graph(graph: OpGraph, target: str, level: int = 1, *, text: str = "", name: str = "") -> Task:
    """Makes a task from a graph. `level` is the number of synthesis steps that made it. `text` is the source of its
    module, by default what `module_text` writes. `name` becomes part of the name of the module's file; the default is
    the key."""
    task = canonical(graph)
    key = task.key()
    path, text = f"/nowhere/task_{name or key}.py", text or module_text(graph)
    return Task(key, level, graph, task, build_task(path, target=target, numerics=Numerics.kernelbench, text=text))


def synthesised(
    target: str, random: Random, level: Callable[[], int], wanted: str, seen: set[str], narrow: Narrow
) -> Task | None:
    """Makes a task of the split `wanted`, with `level()` synthesis steps, whose key is not in `seen`; adds the key to
    `seen`. `narrow` restricts the operators. Returns None if none of `TRIES` random graphs fits.
    """

    def sample() -> tuple[OpGraph, int]:
        steps = level()
        return narrow.sample(random, steps), steps

    return new_task(target, random, sample, wanted, seen)


def new_task(
    target: str, random: Random, sample: Callable[[], tuple[OpGraph, int]], wanted: str, seen: set[str]
) -> Task | None:
    """Makes a task of the split `wanted`, whose key is not in `seen`, from a graph that `sample` returns with its
    level; adds the key to `seen`. Sizes are drawn at random. Returns None if none of `TRIES` graphs fits."""
    for _ in range(TRIES):
        sampled, level = sample()
        graph = fitted(sampled, target, random)
        if graph is None or traffic(graph) > MOST_BYTES[target]:
            continue
        task = canonical(graph)
        if split(task) == wanted and task.key() not in seen:
            seen.add(task.key())
            return of_graph(graph, target, level)
    return None
