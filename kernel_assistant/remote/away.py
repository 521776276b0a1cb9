"""Jobs of a front end that stays, on the machine that the setting `host` names. Their results are brought back here.

A note in the state folder says that a job runs over there, so that a front end which is started anew follows it again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_assistant.config import Settings
from kernel_assistant.errors import KernelAssistantError, StoreError, boundary
from kernel_assistant.records import KernelTask, OptimizeResult
from kernel_assistant.records.codec import Record, decode, encode
from kernel_assistant.remote.box import Box
from kernel_assistant.remote.closure import find_closure
from kernel_assistant.remote.results import fetch, keep
from kernel_assistant.remote.told import told
from kernel_assistant.store import JobOptions

_FOLDER = "away"
_connecting = threading.Lock()


class Away(Record, frozen=True, kw_only=True):
    """Job `number` on `host`, about a class of a file here. `budget` in seconds."""

    host: str
    number: str
    path: str
    class_name: str
    kind: str
    budget: float

    @property
    def job(self) -> str:
        return f"{self.host}:{self.number}"


@dataclass(frozen=True)
class Sent:
    """`answer` is what the host over there said: `{"job", "joined", "resumed", "ahead"}`."""

    box: Box
    away: Away
    answer: dict[str, Any]


def send(task: KernelTask, options: JobOptions, settings: Settings) -> Sent:
    """Ship a task that was prepared for elsewhere, and submit it there.

    Raises what the other machine raises, and MissingError where ssh fails.
    """
    box: Box | None = None
    try:
        closure = find_closure(task, settings.ship)
        box = connected(settings)
        prepared = box.prepare(task, options, closure)
        answer = box.client.submit(prepared.task, prepared.options)
    except KernelAssistantError as error:
        raise told(error, settings, lost=box is not None and box.client.lost()) from error
    away = Away(
        host=settings.host,
        number=str(answer["job"]),
        path=task.path,
        class_name=task.class_name,
        kind=options.kind.value,
        budget=options.budget,
    )
    _note(settings, away)
    return Sent(box, away, answer)


def connected(settings: Settings) -> Box:
    """One connection at a time: the first one installs this tool over there."""
    with _connecting:
        return Box(settings)


def bring_back(box: Box, away: Away, settings: Settings) -> OptimizeResult:
    """The result of a job that has ended, kept here; `artifacts["job"]` is its number here."""
    result = keep(fetch(box, away.number), settings)
    _place(settings, away).unlink(missing_ok=True)
    return result


def noted(settings: Settings) -> list[Away]:
    """Jobs that were sent, here or by another front end, and not brought back yet."""
    found = []
    for path in sorted((settings.state_dir / _FOLDER).glob("*.json")):
        try:
            found.append(decode(path.read_bytes(), Away))
        except (OSError, KernelAssistantError):
            path.unlink(missing_ok=True)  # half written when a machine stopped: nobody knows what it was
    return found


def _place(settings: Settings, away: Away) -> Path:
    name = "".join(letter if letter.isalnum() else "-" for letter in away.job)
    return settings.state_dir / _FOLDER / f"{name}.json"


def _note(settings: Settings, away: Away) -> None:
    path = _place(settings, away)
    with boundary(StoreError, f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(encode(away))
