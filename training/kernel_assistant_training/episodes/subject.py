"""Makes an endless stream of tasks with correct answers, which depends only on the seed."""

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
    """Task `number` of the stream, from the training split. `level` is the number of synthesis steps that made it,
    `key` the hash of its canonical graph `task`. All `answers` are correct; the first is the generator's first
    choice."""

    number: int
    level: int
    graph: OpGraph
    task: Canonical
    key: str
    answers: tuple[Answer, ...]

    def candidates(self, lesson: Lesson, target: str) -> list[Candidate]:
        """Returns the candidates of a lesson's replies. Leaves out replies whose launch lines cannot be parsed."""
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
    """Yields tasks from number `first` on. The keys of the tasks divide the stream among `parts` processes; only the
    tasks of process `part` are yielded. `narrow` restricts the operators and the level.

    If the generator raises an error for a task, `broken` is called with (number, key, error) and the task is skipped;
    without `broken` the error is raised.
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
