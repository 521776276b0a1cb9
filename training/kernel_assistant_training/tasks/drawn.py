"""Draws tasks for labels from synthesis and the package's traced graphs, in equal parts of the kinds of kernels that
the generator's rules tell apart."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from kernel_assistant.errors import InternalError
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.search.search import first_guess
from kernel_assistant.records import OpGraph, encode
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.evaluation.tasks import Task, new_task
from kernel_assistant_training.synth.sampler import LEVELS, sampled
from kernel_assistant_training.synth.traced.graphs import traced_graphs

#: The kinds of kernels that have equally many tasks, each with the families of steps that synthesis favours while tasks
#: of this kind are the fewest. Other kinds (templates, recurrent layers) have no task.
KINDS = {
    "pointwise": frozenset({"activation", "arithmetic"}),
    "transpose": frozenset({"layout", "view"}),
    "rows": frozenset({"rows", "softmax"}),
    "cols": frozenset({"strided", "batch_norm"}),
    "window": frozenset({"windows"}),
    "scan": frozenset({"scan"}),
    "parts": frozenset({"branch", "inner"}),
}


def kind_of(graph: OpGraph, device: DeviceFacts) -> str:
    """Returns the kind of the kernel of the generator's first guess: one of `KINDS`, or the name of its schedule's
    form. Raises Unsupported if the generator cannot write the graph."""
    form = first_guess(graph, device.target, device).form
    family, _, rest = form.partition("/")
    return "transpose" if rest in ("transpose", "blocked") else family


def drawn_tasks(device: DeviceFacts, count: int, seed: int) -> list[tuple[Task, str]]:
    """Returns `count` different tasks of the training split, each with its kind; kinds take turns. Half of the draws
    are from synthesis, half from the package's traced graphs. Raises InternalError if a kind has no task left."""
    random, seen, target = Random(f"drawn tasks {seed}"), set[str](), device.target
    by_kind: dict[str, list[Task]] = {kind: [] for kind in KINDS}
    each = -(-count // len(KINDS))
    while len(by_kind[fewest := min(by_kind, key=lambda kind: len(by_kind[kind]))]) < each:
        sample = partial(random.choice((_synthesised, _traced)), random, KINDS[fewest])
        task = new_task(target, random, sample, "train", seen)
        if task is None:
            raise InternalError(f"no further task is found for the kind {fewest}", "ask for fewer tasks")
        with suppress(Unsupported):
            kind = kind_of(task.graph, device)
            if kind in by_kind and len(by_kind[kind]) < each:
                by_kind[kind].append(task)
    turns = zip(*by_kind.values(), strict=True)
    return [(task, kind) for turn in turns for task, kind in zip(turn, by_kind, strict=True)][:count]


def _synthesised(random: Random, favoured: frozenset[str]) -> tuple[OpGraph, int]:
    level = random.choice(LEVELS)
    return sampled(random, level, favoured=favoured)[0], level


def _traced(random: Random, _favoured: frozenset[str]) -> tuple[OpGraph, int]:
    one = random.choice(traced_graphs("train"))
    return one.graph, len(one.operators)


def rows_of_tasks(device: DeviceFacts, count: int, seed: int) -> list[dict[str, Any]]:
    """Returns `count` drawn tasks as rows of a shard (`shards.py`); `source` is the kind, eager's time is not known."""
    return [
        {
            "key": task.key,
            "number": number,
            "source": kind,
            "split": "train",
            "target": device.target,
            "operators": [],
            "operator_count": task.level,
            "attribution": [],
            "text": task.kernel_task.content,
            "graph": encode(task.graph).decode(),
            "eager_ms": None,
            "seed": seed,
        }
        for number, (task, kind) in enumerate(drawn_tasks(device, count, seed))
    ]
