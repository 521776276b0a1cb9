"""Tasks with correct answers: an endless stream that depends on the seed alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

from kernel_assistant.agent.directives import DirectiveError, candidate_from
from kernel_assistant.records import Candidate, OpGraph
from kernel_assistant.records.canonical import Canonical, canonical
from kernel_assistant_training.evaluation.tasks import MOST_BYTES
from kernel_assistant_training.lessons.lesson import Lesson, candidate_file
from kernel_assistant_training.synth import fitted, split
from kernel_assistant_training.synth.answers import Answer, answers
from kernel_assistant_training.synth.memory import traffic
from kernel_assistant_training.synth.narrow import Narrow

#: Probabilities of tasks with one to five operators.
LEVELS = {1: 0.3, 2: 0.25, 3: 0.2, 4: 0.15, 5: 0.1}
#: Number of schedules that a lesson may use.
MOST_ANSWERS = 4


@dataclass(frozen=True)
class LessonTask:
    """Task `number` of its stream, from the training split. `answers` are correct; the generator's first guess comes
    first."""

    number: int
    level: int
    graph: OpGraph
    task: Canonical
    key: str
    answers: tuple[Answer, ...]

    def candidates(self, lesson: Lesson, target: str) -> list[Candidate]:
        """The candidates of a lesson's replies. A reply whose plan cannot be parsed has none."""
        candidates = []
        for reply in lesson.sayings:
            files = {candidate_file(target): reply.source.rstrip() + "\n"}
            try:
                candidates.append(candidate_from(files, self.graph, target, self.task))
            except DirectiveError:
                continue
        return candidates


def subjects(
    seed: int,
    target: str,
    *,
    first: int = 0,
    part: int = 0,
    parts: int = 1,
    narrow: Narrow | None = None,
    broken: Callable[[int, str, str], None] | None = None,
) -> Iterator[LessonTask]:
    """Tasks from number `first` on. The stream is divided by the tasks' keys into `parts` parts; part number `part` is
    returned.

    If the generator fails at a task, `broken` is called with (number, key, error); without `broken` the error is
    raised.
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
            right_answers = answers(task, target, random, MOST_ANSWERS)
        except Exception as error:
            if broken is None:
                raise
            broken(number, key, f"{type(error).__name__}: {error}")
            continue
        if right_answers:
            yield LessonTask(number, level, graph, task, key, tuple(right_answers))
