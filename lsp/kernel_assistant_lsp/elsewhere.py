"""Jobs on the machine that the setting `host` names. The result is brought into the local store when it is there.

A note in the state folder says that a job runs over there, so that a server which is started anew follows it again.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from lsprotocol.types import MessageType

from kernel_assistant.config import Settings
from kernel_assistant.errors import KernelAssistantError, StoreError, boundary
from kernel_assistant.records import KernelTask
from kernel_assistant.records.codec import Record, decode, encode
from kernel_assistant.remote.box import Box
from kernel_assistant.remote.closure import find_closure
from kernel_assistant.remote.results import fetch, keep
from kernel_assistant.remote.told import told
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobOptions
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.jobs.table import first_view
from kernel_assistant_lsp.start import ended

_FOLDER = "editor-jobs"
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


async def start_there(context: Context, task: KernelTask, options: JobOptions, settings: Settings) -> dict[str, Any]:
    """`{"job": "MACHINE:NUMBER", …}`. Raises what the other machine raises, and MissingError where ssh fails."""

    def submit() -> tuple[Box, dict[str, Any], Away]:
        box: Box | None = None
        try:
            closure = find_closure(task, settings.ship)
            box = _connected(settings)
            prepared = box.prepare(task, options, closure)
            submitted = box.client.submit(prepared.task, prepared.options)
        except KernelAssistantError as error:
            raise told(error, settings, lost=box is not None and box.client.lost()) from error
        away = Away(
            host=settings.host,
            number=str(submitted["job"]),
            path=task.path,
            class_name=task.class_name,
            kind=options.kind.value,
            budget=options.budget,
        )
        _note(settings, away)
        return box, submitted, away

    box, submitted, away = await in_thread(submit)
    _follow(context, box, away, settings)
    return {**submitted, "job": away.job}


async def follow_again(context: Context) -> None:
    """Jobs that an earlier server has left on the machine of the settings."""
    settings = context.settings(next(iter(context.folders()), None))
    if not settings.host:
        return
    mine = [one for one in await in_thread(lambda: _noted(settings)) if _is_ours(context, one)]
    if not mine:
        return
    try:
        box = await in_thread(lambda: _connected(settings))
    except KernelAssistantError as error:
        context.tell(f"{len(mine)} jobs on {settings.host} cannot be followed: {error.cause}", MessageType.Warning)
        return
    for one in mine:
        _follow(context, box, one, settings)


def _follow(context: Context, box: Box, away: Away, settings: Settings) -> None:
    path = Path(away.path)
    view = first_view(away.job, path, away.class_name, kind=away.kind, budget=away.budget)

    def end() -> None:
        context.spawn(_bring_back(context, box, away, settings))

    context.jobs.watch(view, path, box.client, away.number, end)


async def _bring_back(context: Context, box: Box, away: Away, settings: Settings) -> None:
    def bring() -> None:
        keep(fetch(box, away.number), settings)
        _place(settings, away).unlink(missing_ok=True)

    try:
        await in_thread(bring)
    except KernelAssistantError as error:
        context.tell(f"the result of {box.name} is not here: {error.cause}", MessageType.Warning)
    ended(context, Path(away.path))


def _connected(settings: Settings) -> Box:
    """One connection at a time: the first one installs this tool over there."""
    with _connecting:
        return Box(settings)


def _is_ours(context: Context, away: Away) -> bool:
    return away.host == context.settings(Path(away.path)).host and any(
        Path(away.path).is_relative_to(folder) for folder in context.folders()
    )


def _place(settings: Settings, away: Away) -> Path:
    name = "".join(letter if letter.isalnum() else "-" for letter in away.job)
    return settings.state_dir / _FOLDER / f"{name}.json"


def _note(settings: Settings, away: Away) -> None:
    path = _place(settings, away)
    with boundary(StoreError, f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(encode(away))


def _noted(settings: Settings) -> list[Away]:
    found = []
    for path in sorted((settings.state_dir / _FOLDER).glob("*.json")):
        try:
            found.append(decode(path.read_bytes(), Away))
        except (OSError, KernelAssistantError):
            path.unlink(missing_ok=True)  # half written when a machine stopped: nobody knows what it was
    return found
