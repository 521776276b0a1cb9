"""Held-out tasks with the teacher's answers, made by a process of their own. Without torch."""

from __future__ import annotations

from multiprocessing import get_context
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import msgspec

from kernel_assistant.errors import InternalError
from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.codec import Record
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.interrupts import belong_to_parent
from kernel_assistant_training.source import TARGETS

#: Answers of the teacher that one is compared with.
_ANSWERS = 24


class HeldOut(Record, frozen=True, kw_only=True):
    """A task: its graph, the prompt, and what the teacher answers, best guess first."""

    target: str
    split: str
    graph: OpGraph
    prompt: tuple[Message, ...]
    answers: tuple[str, ...]


def tasks(target: str, count: int, seed: int) -> list[HeldOut]:
    """`count` different ones of the held-out split, of all levels alike."""
    from kernel_assistant_training.synth import prompt, sample, split
    from kernel_assistant_training.teacher import answers

    random, found = Random(f"held out {target} {seed}"), dict[str, HeldOut]()
    while len(found) < count:
        graph = sample(random, 1 + len(found) % 5)
        task = canonical(graph)
        if split(task) != "held_out" or task.key() in found:
            continue
        try:
            written = answers(task, target, random, _ANSWERS)
        except Exception:  # noqa: BLE001 - one task that the teacher trips over is left out, as it is of the pairs
            continue
        if written:
            found[task.key()] = HeldOut(
                target=target,
                split="held_out",
                graph=graph,
                prompt=tuple(prompt(task, target, random)),
                answers=tuple(answer.source for answer in written),
            )
    return list(found.values())


class HeldOutMaker:
    """Writes `count` tasks of each target to a file, in a process of its own. A context manager."""

    def __init__(self, file: Path, count: int, seed: int = 0) -> None:
        self._process = get_context("spawn").Process(target=write_tasks, args=(file, count, seed), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def wait(self) -> None:
        """Until the file is there. Raises InternalError where it is not."""
        self._process.join()
        if self._process.exitcode:
            raise InternalError("held-out tasks were not made", "see the message of that process")

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()


def write_tasks(file: Path, count: int, seed: int) -> None:
    """A process of its own."""
    belong_to_parent()
    found = [task for target in TARGETS for task in tasks(target, count, seed)]
    file.write_bytes(b"".join(msgspec.json.encode(task) + b"\n" for task in found))


def read_tasks(file: Path) -> list[HeldOut]:
    return [msgspec.json.decode(line, type=HeldOut) for line in file.read_bytes().splitlines()]
