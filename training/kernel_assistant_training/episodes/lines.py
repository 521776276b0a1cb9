"""Files of JSON lines that survive a crash: episodes, and what contradicted its lesson."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kernel_assistant.records.codec import Record
from kernel_assistant.records.transcript import Message

R = TypeVar("R", bound=msgspec.Struct)


class Episode(Record, frozen=True, kw_only=True):
    """One conversation. Times in milliseconds; `number` is that of the task in its stream.

    `seconds` by stage: what a task's lessons share counts in its first line, what was judged before does not count
    again. `playing` has all from the first write on; `waiting`, for the device, is part of `baseline` and `profile`;
    `failed` is what lessons without a line took.

    `messages` are dictionaries with role, content, tool_call_id where there is one, and `loss` for what an assistant
    says. `compile` says where `compile_ms` is from: "estimated", or "none".
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
    """What contradicted its lesson. `what` is "harmless" (a fault), "answer" (a right one that fails), "full" (at other
    inputs and sizes), "graph" (traced
    otherwise than it was written), "open" (the task cannot be judged), "teacher" (it failed), "stopped" (the
    conversation got too long) or "worker" (it was lost)."""

    number: int
    key: str
    what: str
    message: str
    families: tuple[str, ...] = ()
    source: str = ""
    fault: str = ""
    task: str = ""


class Lines:
    """Appends records to a file; what a crash cut off is dropped when it is opened. One writer for a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._file.truncate(len(_whole(path)))

    def add(self, record: Record) -> None:
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_lines(path: Path, kind: type[R]) -> Iterator[R]:
    """The records of a file that somebody may be writing."""
    for line in _whole(path).splitlines():
        yield msgspec.json.decode(line, type=kind)


def _whole(path: Path) -> bytes:
    head, end, _ = path.read_bytes().rpartition(b"\n")
    return head + end


def as_document(message: Message, loss: bool | None = None) -> dict[str, Any]:
    """A message as training takes it; `loss` for what an assistant says."""
    return message.openai() if loss is None else {**message.openai(), "loss": loss}
