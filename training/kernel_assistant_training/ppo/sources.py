"""Where tasks to play come from: the synthesis, shards of `train synth`, or both by weights; docs/training.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

from kernel_assistant.errors import UsageError
from kernel_assistant.records import Numerics
from kernel_assistant.records.canonical import canonical
from kernel_assistant.source.build import build_task
from kernel_assistant_training.ppo.tasks import Task, synthesised
from kernel_assistant_training.synth.narrow import Narrow
from kernel_assistant_training.synth.split import split_of
from kernel_assistant_training.tasks.shards import graph_of, read_rows

#: How often tasks with a number of operators are drawn, by that number.
Weights = Mapping[int, float]


@dataclass(frozen=True)
class SourceOptions:
    """`synthesis` is the weight of the programmatic one, of which `narrow` is a part; `shards` are folders with
    theirs. Weights are relative."""

    synthesis: float = 1.0
    shards: tuple[tuple[Path, float], ...] = ()
    narrow: Narrow = field(default_factory=Narrow)

    def asked(self) -> dict[str, Any]:
        """What a second start is held to. Folders may lie elsewhere on another machine."""
        weights = [weight for _, weight in self.shards]
        return {
            "synthesis": self.synthesis,
            "shards": weights,
            "only": sorted(self.narrow.only),
            "level": self.narrow.most,
        }


class Source(Protocol):
    def levels(self, wanted: str) -> Sequence[int]:
        """Numbers of operators that its tasks of split `wanted` have, ascending."""

    def draw(self, random: Random, weights: Weights, wanted: str, seen: set[str]) -> Task | None:
        """One of split `wanted` that is not among the keys `seen`; None where there is none left."""


class Synthesis:
    def __init__(self, target: str, narrow: Narrow) -> None:
        self._target, self._narrow = target, narrow

    def levels(self, wanted: str) -> Sequence[int]:
        return range(1, self._narrow.most + 1)

    def draw(self, random: Random, weights: Weights, wanted: str, seen: set[str]) -> Task | None:
        own = {level: weight for level, weight in weights.items() if level in self.levels(wanted)}

        def level() -> int:
            return random.choices(list(own), list(own.values()))[0]

        return synthesised(self._target, random, level, wanted, seen, self._narrow) if own else None


class Shards:
    """Rows of the folder's Parquet files. `refused` counts rows that are no task after all, by the reason: a damaged
    or foreign file costs those. Raises UsageError where the folder has no shards of this target, MissingError."""

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
        """None where it is not what it says: the split is recomputed, so that no shard brings in what is held out."""
        try:
            graph = graph_of(row)
            task = canonical(graph)
            if task.key() != row["key"]:
                raise UsageError("key")
            if split_of(graph, row["key"]) != row["split"]:
                raise UsageError("split")
            path = f"/nowhere/task_{row['key']}.py"
            described = build_task(path, target=self._target, numerics=Numerics.kernelbench, text=row["text"])
        except UsageError as error:
            self.refused[error.cause] += 1
            return None
        return Task(row["key"], row["operator_count"], graph, task, described)


class Sources:
    """All that are asked for. Raises UsageError where nothing is, MissingError without pyarrow where it is needed."""

    def __init__(self, target: str, options: SourceOptions) -> None:
        weighted: list[tuple[Source, float]] = [(Synthesis(target, options.narrow), options.synthesis)]
        self._shards = [Shards(folder, target) for folder, weight in options.shards if weight > 0]
        weighted += zip(self._shards, (weight for _, weight in options.shards if weight > 0), strict=True)
        self._weighted = [(source, weight) for source, weight in weighted if weight > 0]
        if not self._weighted:
            raise UsageError("no tasks are asked for", "use --shards FOLDER, or --synthesis 1")

    @property
    def refused(self) -> int:
        """Rows so far."""
        return sum(shards.refused.total() for shards in self._shards)

    def levels(self, wanted: str = "train") -> list[int]:
        return sorted({level for source, _ in self._weighted for level in source.levels(wanted)})

    def prompts(self, count: int, seed: int) -> list[Task]:
        """The same `count` of the training split in every stage of a run. Raises UsageError as `tasks`."""
        return self.tasks(count, Random(f"prompts {seed}"))

    def tasks(
        self,
        count: int,
        random: Random,
        *,
        weights: Callable[[Sequence[int]], Weights] | None = None,
        wanted: str = "train",
    ) -> list[Task]:
        """`count` different ones of a split, the same for the same random numbers; fewer where the sources have no
        more. `weights` say how often a number of operators is drawn, all alike without. Raises UsageError where there
        is none to train on."""
        levels = self.levels(wanted)
        chosen = weights(levels) if weights else dict.fromkeys(levels, 1.0)
        left, seen, found = list(self._weighted), set[str](), list[Task]()
        while left and len(found) < count:
            (place,) = random.choices(range(len(left)), [weight for _, weight in left])
            task = left[place][0].draw(random, chosen, wanted, seen)
            if task is None:
                del left[place]
            else:
                found.append(task)
        if not found and wanted == "train":
            raise UsageError("the sources have no task to train on", "make more shards, or use --synthesis 1")
        return found
