"""Tasks with answers: an endless stream, the same for everybody who has the seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

from kernel_assistant.agent.directives import DirectiveError, candidate_from
from kernel_assistant.records import Candidate, OpGraph
from kernel_assistant.records.canonical import Canonical, canonical
from kernel_assistant.records.graph import DTYPE_BYTES, TensorSpec
from kernel_assistant.worker.runner.plan import evaluate
from kernel_assistant_training.episodes.lesson import Lesson, candidate_file
from kernel_assistant_training.synth import sample, split
from kernel_assistant_training.teacher import Answer, answers

#: How often tasks of one to five operators are drawn.
LEVELS = {1: 0.3, 2: 0.25, 3: 0.2, 4: 0.15, 5: 0.1}
#: Different schedules that a lesson may use.
MOST_ANSWERS = 4
#: Bytes of inputs and outputs together: large enough to be timed, small enough to be opened quickly.
WINDOW = {"cpu": (1 << 18, 24 << 20), "cuda": (4 << 20, 192 << 20)}


@dataclass(frozen=True)
class Subject:
    """A task of the training split, number `number` of its stream, and right answers, the best guess first."""

    number: int
    level: int
    graph: OpGraph
    task: Canonical
    key: str
    answers: tuple[Answer, ...]

    def candidates(self, lesson: Lesson, target: str) -> list[Candidate]:
        """What a lesson's sayings come to; without those whose plan cannot be read."""
        found = []
        for saying in lesson.sayings:
            files = {candidate_file(target): saying.source.rstrip() + "\n"}
            try:
                found.append(candidate_from(files, self.graph, target, self.task))
            except DirectiveError:
                continue
        return found


def subjects(seed: int, target: str, *, first: int = 0, part: int = 0, parts: int = 1) -> Iterator[Subject]:
    """Tasks from number `first` on. Of `parts` streams, which share no key, this is number `part`."""
    levels, weights = list(LEVELS), list(LEVELS.values())
    low, high = WINDOW[target]
    for number in count(first):
        random = Random(f"episodes {seed} {number}")
        level = random.choices(levels, weights)[0]
        graph = sample(random, level)
        if not low <= traffic(graph) <= high:
            continue
        task = canonical(graph)
        key = task.key()
        if int(key[:8], 16) % parts != part or split(task) != "train":
            continue
        found = answers(task, target, random, MOST_ANSWERS)
        if found:
            yield Subject(number, level, graph, task, key, tuple(found))


def traffic(graph: OpGraph) -> int:
    """Bytes of inputs and outputs at the base sizes."""
    specs = [*(value.spec for value in graph.inputs), *map(graph.spec, graph.outputs)]
    return sum(_bytes(spec, graph.dims) for spec in specs)


def _bytes(spec: TensorSpec, dims: dict[str, int]) -> int:
    size = DTYPE_BYTES[spec.dtype]
    for extent in spec.shape:
        size *= evaluate(extent, dims)
    return size
