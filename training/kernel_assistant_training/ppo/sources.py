"""Sources of tasks for training: synthesis while training runs, the package's traced graphs, shards that
`train synth` wrote, or a weighted mix; docs/training.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Protocol

from kernel_assistant.errors import UsageError
from kernel_assistant.records import OpGraph
from kernel_assistant_training.evaluation.tasks import Task, new_task, of_graph, synthesised
from kernel_assistant_training.synth.narrow import Narrow
from kernel_assistant_training.synth.split import split_of
from kernel_assistant_training.synth.traced.graphs import TracedGraph, traced_graphs
from kernel_assistant_training.tasks.shards import graph_of, read_rows

#: Relative weights of tasks, by their number of operators.
Weights = Mapping[int, float]


@dataclass(frozen=True)
class SourceOptions:
    """Which tasks training draws. `synthesis` is the weight of tasks that are made while training runs, and `narrow`
    restricts these tasks. `traced` is the weight of tasks with the package's graphs of PyTorch's operators. `shards`
    are folders with tasks made earlier, each with its weight. Weights are relative.
    """

    synthesis: float = 1.0
    traced: float = 0.0
    shards: tuple[tuple[Path, float], ...] = ()
    narrow: Narrow = field(default_factory=Narrow)

    def asked(self) -> dict[str, Any]:
        """Returns the settings that must be the same when a run is started again. Folders may move, so their paths are
        not included."""
        weights = [weight for _, weight in self.shards]
        # Absent without such tasks, as in runs that were begun before it was an option.
        traced = {"traced": self.traced} if self.traced else {}
        return {
            **traced,
            "synthesis": self.synthesis,
            "shards": weights,
            "only": sorted(self.narrow.only),
            "level": self.narrow.most,
        }


class TaskSource(Protocol):
    def levels(self, wanted: str) -> Sequence[int]:
        """Returns the numbers of operators that the source's tasks in split `wanted` have, ascending."""

    def draw(self, random: Random, weights: Weights, wanted: str, seen: set[str]) -> Task | None:
        """Draws a task of split `wanted` whose key is not in `seen`, and adds its key to `seen`. `weights` are the
        relative weights of the numbers of operators. Returns None if no such task is left."""


class SynthesisSource:
    def __init__(self, target: str, narrow: Narrow) -> None:
        self._target, self._narrow = target, narrow

    def levels(self, wanted: str) -> Sequence[int]:
        return range(1, self._narrow.most + 1)

    def draw(self, random: Random, weights: Weights, wanted: str, seen: set[str]) -> Task | None:
        own = {level: weight for level, weight in weights.items() if level in self.levels(wanted)}

        def level() -> int:
            return random.choices(list(own), list(own.values()))[0]

        return synthesised(self._target, random, level, wanted, seen, self._narrow) if own else None


class TracedSource:
    """A source of the tasks in the package's file of graphs that were traced from PyTorch's operators (`traced/`), of
    up to `narrow.most` operators. A task's module is written from its graph, in sizes by lot. Raises UsageError if
    `narrow` names operators."""

    def __init__(self, target: str, narrow: Narrow) -> None:
        if narrow.only:
            raise UsageError("traced graphs are not restricted to operators", "use --traced 0, or leave out --only")
        self._target, self._most = target, narrow.most

    def levels(self, wanted: str) -> Sequence[int]:
        return [level for level in sorted(_traced_by_level(wanted)) if level <= self._most]

    def draw(self, random: Random, weights: Weights, wanted: str, seen: set[str]) -> Task | None:
        graphs = _traced_by_level(wanted)
        own = {level: weight for level, weight in weights.items() if level in self.levels(wanted)}

        def sample() -> tuple[OpGraph, int]:
            (level,) = random.choices(list(own), list(own.values()))
            return random.choice(graphs[level]).graph, level

        return new_task(self._target, random, sample, wanted, seen) if own else None


@cache
def _traced_by_level(wanted: str) -> dict[int, list[TracedGraph]]:
    """Returns the traced graphs of a split by their number of operators."""
    by_level: dict[int, list[TracedGraph]] = {}
    for one in traced_graphs("train" if wanted == "train" else "held_out"):
        by_level.setdefault(len(one.operators), []).append(one)
    return by_level


class ShardSource:
    """A source of the tasks in a folder's Parquet files. Tasks that contradict their row are left out when they are
    drawn; `refused` counts them by reason. Raises UsageError if the folder has no shards for this target, MissingError
    without pyarrow.
    """

    def __init__(self, folder: Path, target: str) -> None:
        self.refused: Counter[str] = Counter()
        self._target = target
        rows = read_rows(folder)
        targets = {row["target"] for row in rows}
        if not rows:
            raise UsageError(f"{folder} has no shards of tasks", "make them: kernel-assistant train synth")
        if targets != {target}:
            named = ", ".join(sorted(targets))
            raise UsageError(f"{folder} has tasks for {named}, not for {target}", "name other shards, or --target")
        self._rows: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for row in rows:
            self._rows.setdefault((row["split"], row["operator_count"]), []).append(row)

    def levels(self, wanted: str) -> Sequence[int]:
        return sorted({level for split, level in self._rows if split == wanted})

    def draw(self, random: Random, weights: Weights, wanted: str, seen: set[str]) -> Task | None:
        left = {level: weight for level, weight in weights.items() if (wanted, level) in self._rows}
        while left:
            (level,) = random.choices(list(left), list(left.values()))
            fresh = [row for row in self._rows[wanted, level] if row["key"] not in seen]
            if not fresh:
                del left[level]
                continue
            row = random.choice(fresh)
            seen.add(row["key"])
            task = self._task(row)
            if task is not None:
                return task
        return None

    def _task(self, row: dict[str, Any]) -> Task | None:
        """Returns the row's task; None, counted in `refused`, if the task contradicts the row's key or split. The split
        is recomputed, so that no shard can bring in held-out tasks."""
        try:
            graph = graph_of(row)
            task = of_graph(graph, self._target, row["operator_count"], text=row["text"])
            if task.key != row["key"]:
                raise UsageError("key")
            if split_of(graph, row["key"]) != row["split"]:
                raise UsageError("split")
        except UsageError as error:
            self.refused[error.cause] += 1
            return None
        return task


class MixedSource:
    """A weighted mix of all configured sources. Raises UsageError if no source is configured, and MissingError if there
    are shards but no pyarrow."""

    def __init__(self, target: str, options: SourceOptions) -> None:
        weighted: list[tuple[TaskSource, float]] = [(SynthesisSource(target, options.narrow), options.synthesis)]
        if options.traced > 0:
            weighted.append((TracedSource(target, options.narrow), options.traced))
        self._shards = [ShardSource(folder, target) for folder, weight in options.shards if weight > 0]
        weighted += zip(self._shards, (weight for _, weight in options.shards if weight > 0), strict=True)
        self._weighted = [(source, weight) for source, weight in weighted if weight > 0]
        if not self._weighted:
            raise UsageError("no tasks are asked for", "use --shards FOLDER, or --synthesis 1")

    @property
    def refused(self) -> int:
        """The number of rows of all shards that were refused so far, because they contradict their task."""
        return sum(shards.refused.total() for shards in self._shards)

    def levels(self, wanted: str = "train") -> list[int]:
        return sorted({level for source, _ in self._weighted for level in source.levels(wanted)})

    def prompts(self, count: int, seed: int) -> list[Task]:
        """Returns `count` tasks of the training split, the same in every stage of a run with this seed. Raises
        UsageError if the sources have no task to train on."""
        return self.tasks(count, Random(f"prompts {seed}"))

    def tasks(
        self,
        count: int,
        random: Random,
        *,
        weights: Callable[[Sequence[int]], Weights] | None = None,
        wanted: str = "train",
    ) -> list[Task]:
        """Returns `count` different tasks of split `wanted`, determined by `random`; fewer if the sources have no more.
        `weights` returns the relative weight of each number of operators, by default equal. Raises UsageError if the
        sources have no task to train on."""
        levels = self.levels(wanted)
        chosen = weights(levels) if weights else dict.fromkeys(levels, 1.0)
        left, seen, tasks = list(self._weighted), set[str](), list[Task]()
        while left and len(tasks) < count:
            (index,) = random.choices(range(len(left)), [weight for _, weight in left])
            task = left[index][0].draw(random, chosen, wanted, seen)
            if task is None:
                del left[index]
            else:
                tasks.append(task)
        if not tasks and wanted == "train":
            raise UsageError("the sources have no task to train on", "make more shards, or use --synthesis 1")
        return tasks
