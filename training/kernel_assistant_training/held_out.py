"""Makes held-out tasks with right answers in a separate process. Does not import torch."""

from __future__ import annotations

from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Self

import msgspec

from kernel_assistant.errors import InternalError
from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.codec import Record
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.interrupts import belong_to_parent
from kernel_assistant_training.source import TARGETS

#: Right answers with which an answer is compared.
_ANSWERS = 24


class HeldOut(Record, frozen=True, kw_only=True):
    """A held-out task (training never draws it): its graph, the prompt, and the source texts of right answers; the
    answer that is expected to be fastest comes first."""

    target: str
    split: str
    graph: OpGraph
    prompt: tuple[Message, ...]
    answers: tuple[str, ...]


def tasks(target: str, count: int) -> list[HeldOut]:
    """Makes `count` different tasks of the held-out split, the same at each call. Levels (numbers of synthesis steps, 1
    to 5) occur equally often."""
    from kernel_assistant_training.synth import prompt, sample, split
    from kernel_assistant_training.synth.answers import answers

    random, by_key = Random(f"held out {target} 0"), dict[str, HeldOut]()
    while len(by_key) < count:
        graph = sample(random, 1 + len(by_key) % 5)
        task = canonical(graph)
        if split(task) != "held_out" or task.key() in by_key:
            continue
        try:
            written = answers(task, target, random, _ANSWERS)
        except Exception:  # noqa: BLE001 - one task that the generator trips over is left out, as it is of the pairs
            continue
        if written:
            by_key[task.key()] = HeldOut(
                target=target,
                split="held_out",
                graph=graph,
                prompt=tuple(prompt(task, target, random)),
                answers=tuple(answer.source for answer in written),
            )
    return list(by_key.values())


class HeldOutMaker:
    """Writes `count` held-out tasks of each target to a file, in a separate process. A context manager; `wait` waits
    for the file."""

    def __init__(self, file: Path, count: int) -> None:
        self._process = get_context("spawn").Process(target=write_tasks, args=(file, count), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def wait(self) -> None:
        """Waits until the file is written. Raises InternalError if the process failed."""
        self._process.join()
        if self._process.exitcode:
            raise InternalError("held-out tasks were not made", "see the message of that process")

    def __exit__(self, *ended: object) -> None:
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()


def write_tasks(file: Path, count: int) -> None:
    """Runs in HeldOutMaker's process: writes `count` held-out tasks of each target to `file`, one JSON text a line."""
    belong_to_parent()
    every = [task for target in TARGETS for task in tasks(target, count)]
    file.write_bytes(b"".join(msgspec.json.encode(task) + b"\n" for task in every))


def read_tasks(file: Path) -> list[HeldOut]:
    return [msgspec.json.decode(line, type=HeldOut) for line in file.read_bytes().splitlines()]
