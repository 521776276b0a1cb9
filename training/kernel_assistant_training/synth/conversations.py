"""Makes conversations without end, in the compact profile; each has one question and one answer about a training
task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from kernel_assistant.agent.prompts import compact_system, compact_task
from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import Canonical, canonical
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.lessons.lesson import fence
from kernel_assistant_training.synth.answers import answers
from kernel_assistant_training.synth.memory import fitted
from kernel_assistant_training.synth.mistakes import FaultRates
from kernel_assistant_training.synth.narrow import Narrow
from kernel_assistant_training.synth.split import split_of
from kernel_assistant_training.synth.steps import Step
from kernel_assistant_training.synth.traced.graphs import traced_graphs

#: Weights of tasks with one to five steps: at the beginning of a stream, and from pair number `RAMP` on.
EASY, LEVELS = (0.5, 0.3, 0.15, 0.05, 0.0), (0.18, 0.25, 0.25, 0.2, 0.12)
RAMP = 5_000
#: Weights for a model that was trained before: of its wrong answers, five in six are to tasks of four or five steps.
CONTINUED = (0.08, 0.14, 0.2, 0.29, 0.29)
#: Probability that a task also returns intermediate values: higher than for tasks of users, because a small model often
#: gets the names of results wrong.
MORE = 0.45
#: Sets of families, each with the share of the tasks in which it is favoured. Without this three fifths of the tasks
#: are rows and elementwise work, which a model learns long before windows and positions.
FAVOURED = {
    frozenset[str](): 0.3,
    frozenset({"windows"}): 0.22,
    frozenset({"layout", "view", "strided", "pieces", "gather"}): 0.3,
    frozenset({"group_norm"}): 0.1,
    frozenset({"scan"}): 0.08,
}
#: Architectures that prompts name; repeats are weights.
ARCHITECTURES = {"cuda": ("sm_90", "sm_90", "sm_90", "sm_80", "sm_89"), "cpu": ("x86-64-avx512", "x86-64-avx2")}
#: Most tasks with the same canonical key in one stream.
CAP = 24
#: A task has up to `SCHEDULES` answers, one after the other: the generator's first guess and, with the probability
#: `DRAWN`, one for a schedule drawn at random.
SCHEDULES, DRAWN = 2, 0.5


@dataclass(frozen=True, slots=True)
class Pair:
    """A training task with the steps that made it, and the source of an answer."""

    graph: OpGraph
    steps: tuple[Step, ...]
    task: Canonical
    source: str


def pairs(
    seed: int,
    target: str,
    narrow: Narrow | None = None,
    mistakes: FaultRates | None = None,
    continued: bool = False,
    traced_share: float = 0.0,
) -> Iterator[list[Message]]:
    """Yields conversations without end: a system, a user and an assistant message. With `mistakes`, some answers get a
    deliberate mistake. With `continued`, tasks have more steps from the first one on, for a model that was trained
    before. `traced_share` is as in `drawn`."""
    random = Random(f"figures {seed} {target}")
    for pair in drawn(seed, target, Counter(), narrow, continued, traced_share):
        source = mistakes.put(pair.source, random) if mistakes else pair.source
        reply = Message(role="assistant", content=fence(source, target))
        yield [*prompt(pair.task, target, random), reply]


def drawn(
    seed: int,
    target: str,
    yields: Counter[str],
    narrow: Narrow | None = None,
    continued: bool = False,
    traced_share: float = 0.0,
) -> Iterator[Pair]:
    """Yields training tasks with answers, without end. A task occurs up to `SCHEDULES` times in a row, each time with
    another answer. `yields` counts the drawn tasks and, by reason, the tasks that are left out. If `narrow` restricts
    the tasks, a task may repeat without limit. The numbers of steps have the weights `CONTINUED` with `continued`, else
    those of `level_weights`. Of the tasks the share `traced_share` is drawn from the graphs that were traced from
    PyTorch's operators (`traced/`), unless `narrow` restricts the tasks; these have no steps."""
    random, seen = Random(f"pairs {seed} {target}"), Counter[str]()
    kind = narrow or Narrow()
    traced = traced_graphs("train") if traced_share and kind.everything else ()
    while True:
        yields["drawn"] += 1
        steps: tuple[Step, ...] = ()
        if traced and random.random() < traced_share:
            chosen = fitted(random.choice(traced).graph, target, random)
            if chosen is None:
                yields["does not fit"] += 1
                continue
            graph = chosen
        else:
            weights = CONTINUED if continued else level_weights(yields["pairs"])
            (level,) = random.choices(range(1, 1 + len(LEVELS)), weights)
            (favoured,) = random.choices(list(FAVOURED), list(FAVOURED.values()))
            graph, steps = kind.sampled(random, level, MORE, favoured)
        task = canonical(graph)
        key = task.key()
        if seen[key] >= CAP and kind.everything:
            yields["seen too often"] += 1
            continue
        part = split_of(graph, key)
        yields[part] += 1
        if part != "train":
            continue
        try:
            task_answers = answers(task, target, random, SCHEDULES if random.random() < DRAWN else 1)
        except Exception:  # noqa: BLE001 - one task that the generator trips over does not end a stream of millions
            yields["generator failed"] += 1
            continue
        # A reward counts operators that stay PyTorch's as wrong.
        task_answers = [answer for answer in task_answers if not answer.residual]
        if not task_answers:
            yields["no answer"] += 1
            continue
        seen[key] += 1
        for answer in task_answers:
            yields["pairs"] += 1
            yield Pair(graph, steps, task, answer.source)


def level_weights(made: int) -> list[float]:
    """Returns the weights of the levels (numbers of steps) after a stream has produced `made` pairs."""
    share = min(made / RAMP, 1.0)
    return [(1 - share) * easy + share * usual for easy, usual in zip(EASY, LEVELS, strict=True)]


def prompt(task: Canonical, target: str, random: Random) -> list[Message]:
    """Returns the system and the user message for a task, with an architecture by lot."""
    content = compact_task(task, task.graph.dims, random.choice(ARCHITECTURES[target]))
    return [Message(role="system", content=compact_system(target)), Message(role="user", content=content)]
