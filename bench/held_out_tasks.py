"""Tasks that training never uses, with their prompts: made once, then read from a file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import msgspec

from kernel_assistant.agent.prompts import compact_system, compact_task
from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import Canonical, canonical
from kernel_assistant.records.codec import Record
from kernel_assistant.records.transcript import Message
from kernel_assistant.session.training_run import replace_file
from kernel_assistant_training.episodes.lines import read_lines
from kernel_assistant_training.synth import fitted, sample, split
from kernel_assistant_training.synth.answers import answers
from kernel_assistant_training.synth.traced.graphs import traced_graphs
from kernel_assistant_training.tasks.candidates.writing import with_batch

LEVELS = 5
#: Number of tasks of each split, relative to those of `held_out`.
SHARES = {"held_out": 1.0, "held_pairs": 0.25, "held_families": 0.25}


class HeldOutTask(Record, frozen=True, kw_only=True):
    """`key` is that of the canonical graph; `writable` says whether the generator can write the task. If `text` is
    empty, the module's source is made from the graph."""

    key: str
    split: str
    level: int
    graph: OpGraph
    prompt: tuple[Message, ...]
    writable: bool
    text: str = ""


def tasks(file: Path, target: str, arch: str, count: int, seed: int) -> list[HeldOutTask]:
    """The tasks in `file`, which is made first if necessary."""
    if not file.is_file():
        replace_file(file, msgspec.json.Encoder().encode_lines(_drawn(target, arch, count, seed)))
    return list(read_lines(file, HeldOutTask))


def composed(file: Path, target: str, arch: str, count: int, seed: int) -> list[HeldOutTask]:
    """The tasks in `file`, which is made first if necessary, of the first `count` held-out compositions that fit."""
    if not file.is_file():
        random, chosen = Random(f"composed {target} {seed}"), list[HeldOutTask]()
        for one in traced_graphs("held_out"):
            graph = fitted(one.graph, target, random)
            if graph is not None and len(chosen) < count:
                text = with_batch(one.text, graph.dims["B"]) if "B" in graph.dims else one.text
                chosen.append(_asked(graph, "composed", len(one.operators), target, arch, text))
        replace_file(file, msgspec.json.Encoder().encode_lines(chosen))
    return list(read_lines(file, HeldOutTask))


def written(task: Canonical, target: str, count: int) -> list[str]:
    """The generator's answers for a task, best guess first. They do not affect which tasks are drawn."""
    try:
        return [answer.source for answer in answers(task, target, Random(task.key()), count)]
    except Exception:  # noqa: BLE001 - a task that it trips over is one that it cannot write
        return []


def _drawn(target: str, arch: str, count: int, seed: int) -> list[HeldOutTask]:
    """Tasks in random order, so that a run that ends early has some of every split."""
    wanted = {part: round(share * count) for part, share in SHARES.items()}
    random = Random(f"held-out tasks {target} {seed}")
    by_key: dict[str, HeldOutTask] = {}
    have: Counter[str | tuple[str, int]] = Counter()
    while len(by_key) < sum(wanted.values()):
        level = random.randint(1, LEVELS)
        graph = fitted(sample(random, level), target, random)
        if graph is None:
            continue
        task = canonical(graph)
        key, part = task.key(), split(task)
        # Equally many of each level; held pairs need two operators and so have no level 1.
        most = -(-wanted.get(part, 0) // (LEVELS - (part == "held_pairs")))
        if key in by_key or have[part, level] >= most or have[part] >= wanted.get(part, 0):
            continue
        have.update([part, (part, level)])
        by_key[key] = _asked(graph, part, level, target, arch)
    mixed = list(by_key.values())
    random.shuffle(mixed)
    return mixed


def _asked(graph: OpGraph, part: str, level: int, target: str, arch: str, text: str = "") -> HeldOutTask:
    task = canonical(graph)
    key = task.key()
    told = compact_task(task, graph.dims, arch)
    prompt = Message(role="system", content=compact_system(target)), Message(role="user", content=told)
    return HeldOutTask(
        key=key,
        split=part,
        level=level,
        graph=graph,
        prompt=prompt,
        writable=bool(written(task, target, 1)),
        text=text,
    )
