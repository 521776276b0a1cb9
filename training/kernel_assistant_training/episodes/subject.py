"""Tasks with answers: an endless stream, the same for everybody who has the seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

from kernel_assistant.agent.directives import DirectiveError, candidate_from
from kernel_assistant.records import Candidate, OpGraph
from kernel_assistant.records.canonical import Canonical, canonical
from kernel_assistant_training.episodes.lesson import Lesson, candidate_file
from kernel_assistant_training.synth import fitted, split
from kernel_assistant_training.synth.memory import traffic
from kernel_assistant_training.synth.narrow import Narrow
from kernel_assistant_training.teacher import Answer, answers

#: How often tasks of one to five operators are drawn.
LEVELS = {1: 0.3, 2: 0.25, 3: 0.2, 4: 0.15, 5: 0.1}
#: Different schedules that a lesson may use.
MOST_ANSWERS = 4
#: Bytes of inputs and outputs together at most, so that a task is opened quickly; `fitted` gives the least.
MOST_BYTES = {"cpu": 16 << 20, "cuda": 128 << 20}


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


def subjects(
    seed: int,
    target: str,
    *,
    first: int = 0,
    part: int = 0,
    parts: int = 1,
    narrow: Narrow | None = None,
    broken: Callable[[int, str, str], None] | None = None,
) -> Iterator[Subject]:
    """Tasks from number `first` on. Of `parts` streams, which share no key, this is number `part`.

    `broken` is told of tasks (number, key) at which the teacher fails, and how; without it that is raised.
    """
    levels, weights, kind = list(LEVELS), list(LEVELS.values()), narrow or Narrow()
    for number in count(first):
        random = Random(f"episodes {seed} {number}")
        level = min(random.choices(levels, weights)[0], kind.most)
        graph = fitted(kind.sample(random, level), target, random)
        if graph is None or traffic(graph) > MOST_BYTES[target]:
            continue
        task = canonical(graph)
        key = task.key()
        if int(key[:8], 16) % parts != part or split(task) != "train":
            continue
        try:
            found = answers(task, target, random, MOST_ANSWERS)
        except Exception as error:
            if broken is None:
                raise
            broken(number, key, f"{type(error).__name__}: {error}")
            continue
        if found:
            yield Subject(number, level, graph, task, key, tuple(found))
