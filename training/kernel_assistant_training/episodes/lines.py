"""Reads and writes files of JSON lines that survive a crash: episodes, and lessons that failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kernel_assistant.records.codec import Record
from kernel_assistant.records.transcript import Message

R = TypeVar("R")


class Episode(Record, frozen=True, kw_only=True):
    """One conversation. `number` is the number of its task in the stream of tasks, `key` the hash of the task's
    canonical graph, `level` its number of synthesis steps. Times `*_ms` are in milliseconds; `floor_ms` is the
    roofline, the lower bound of the run time. `families` are the kinds of kernels in the first right answer.

    `seconds` has the seconds of each stage. Work that the lessons of a task share, such as opening it, counts in the
    first episode of the task; an evaluation from the cache counts as 0. `playing` is the whole conversation; `waiting`
    is the time spent waiting for the device, which `baseline` and `profile` include; `failed` is the time of lessons
    that were not stored.

    `messages` are dictionaries with role, content and, if there is one, tool_call_id; the assistant's messages also
    have `loss`: whether the loss includes the message. `compile` says where `compile_ms` comes from: "estimated", or
    "none".
    """

    number: int
    key: str
    split: str
    target: str
    device: str
    level: int
    behaviours: tuple[str, ...]
    families: tuple[str, ...]
    outcome: str
    turns: tuple[str, ...]
    messages: tuple[dict[str, Any], ...]
    best_ms: float
    eager_ms: float
    floor_ms: float
    compile_ms: float | None
    compile: str
    seconds: dict[str, float]


class Failure(Record, frozen=True, kw_only=True):
    """A lesson or task that failed. `what` is "harmless" (a deliberate mistake has no effect), "answer" (a right reply
    is judged wrong), "full" (a correct candidate is wrong for other inputs or sizes), "graph" (the traced graph differs
    from the graph that the task was made from), "open" (the task cannot be opened), "generator" (the generator raised
    an error), "stopped" (the conversation got too long) or "worker" (the worker was lost). `source` is the failed
    reply's kernel, `fault` the name of its deliberate mistake, `task` the text of the task's module; all three may be
    empty."""

    number: int
    key: str
    what: str
    message: str
    families: tuple[str, ...] = ()
    source: str = ""
    fault: str = ""
    task: str = ""


class EpisodeFile:
    """Appends records to a file as JSON lines, and flushes each. Opening the file removes an incomplete last line,
    which a crash left. A file must not have two writers."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._file.truncate(len(_whole(path)))

    def add(self, record: Record | dict[str, Any]) -> None:
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_lines(path: Path, kind: type[R]) -> Iterator[R]:
    """Yields the records of a file. Skips an incomplete last line, because another process may be writing the file."""
    for line in _whole(path).splitlines():
        yield msgspec.json.decode(line, type=kind)


def _whole(path: Path) -> bytes:
    head, end, _ = path.read_bytes().rpartition(b"\n")
    return head + end


def as_document(message: Message, loss: bool | None = None) -> dict[str, Any]:
    """Returns a message as a dictionary in the form that training reads. `loss` is whether the loss includes the
    message; None, for messages that are not the assistant's, leaves the field out."""
    return message.openai() if loss is None else {**message.openai(), "loss": loss}
