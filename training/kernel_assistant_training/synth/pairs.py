"""Conversations of one question and one answer about training tasks, in the compact profile, without end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from kernel_assistant.agent.prompts import compact_system, compact_task
from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import Canonical, canonical
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.episodes.lesson import fence
from kernel_assistant_training.synth.baselines import invented
from kernel_assistant_training.synth.sampler import sample
from kernel_assistant_training.synth.split import split_of
from kernel_assistant_training.teacher import answers

#: How often tasks of one to five operators are drawn.
LEVELS = {1: 0.2, 2: 0.25, 3: 0.25, 4: 0.18, 5: 0.12}
#: Tasks of one canonical key in one stream.
CAP = 48
#: How often an answer is another schedule than the best guess.
NEIGHBOUR = 0.1


def pairs(seed: int, target: str, yields: Counter[str] | None = None) -> Iterator[list[Message]]:
    """System, user and assistant. `yields` counts what was drawn and what left it out."""
    random = Random(f"pairs {seed} {target}")
    levels, weights = list(LEVELS), list(LEVELS.values())
    seen: Counter[str] = Counter()
    counts = Counter[str]() if yields is None else yields
    while True:
        graph = sample(random, random.choices(levels, weights)[0])
        counts["drawn"] += 1
        task = canonical(graph)
        key = task.key()
        if seen[key] >= CAP:
            counts["seen too often"] += 1
            continue
        part = split_of(graph, key)
        counts[part] += 1
        if part != "train":
            continue
        source = answer(task, target, random)
        if source is None:
            counts["no answer"] += 1
            continue
        seen[key] += 1
        counts["pairs"] += 1
        yield [*_prompt(task, graph, target, random), Message(role="assistant", content=fence(source, target))]


def prompt(task: Canonical, target: str, random: Random) -> list[Message]:
    """System and user message of a task that is not run."""
    return _prompt(task, task.concrete(), target, random)


def _prompt(task: Canonical, graph: OpGraph, target: str, random: Random) -> list[Message]:
    arch, baseline = invented(graph, target, random)
    content = compact_task(task, task.graph.dims, arch, baseline)
    return [Message(role="system", content=compact_system(target)), Message(role="user", content=content)]


def answer(task: Canonical, target: str, random: Random) -> str | None:
    """What the teacher writes: mostly its best guess, at times another of its schedules. None where it has no form."""
    found = answers(task, target, random, 4 if random.random() < NEIGHBOUR else 1)
    return random.choice(found).source if found else None
