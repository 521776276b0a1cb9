"""Jobs on the machine that the setting `host` names. The result is brought into the local store when it is there."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from lsprotocol.types import MessageType

from kernel_assistant.config import Settings
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.records import KernelTask
from kernel_assistant.remote.box import Box
from kernel_assistant.remote.closure import find_closure
from kernel_assistant.remote.results import fetch, keep
from kernel_assistant.remote.told import told
from kernel_assistant.store import JobOptions
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.jobs.table import first_view
from kernel_assistant_lsp.start import ended
from kernel_assistant_lsp.threads import in_thread

_connecting = threading.Lock()


async def start_there(context: Context, task: KernelTask, options: JobOptions, settings: Settings) -> dict[str, Any]:
    """`{"job": "MACHINE:NUMBER", …}`. Raises what the other machine raises, and MissingError where ssh fails."""
    path = Path(task.path)

    def submit() -> tuple[Box, dict[str, Any]]:
        box: Box | None = None
        try:
            closure = find_closure(task, settings.ship)
            with _connecting:
                box = Box(settings)
            prepared = box.prepare(task, options, closure)
            return box, box.client.submit(prepared.task, prepared.options)
        except KernelAssistantError as error:
            raise told(error, settings, lost=box is not None and box.client.lost()) from error

    box, submitted = await in_thread(submit)
    number = str(submitted["job"])
    job = f"{settings.host}:{number}"
    view = first_view(job, path, task.class_name, kind=options.kind.value, budget=options.budget)
    context.jobs.watch(
        view, path, box.client, number, lambda: context.spawn(_bring_back(context, box, number, path, settings))
    )
    return {**submitted, "job": job}


async def _bring_back(context: Context, box: Box, number: str, path: Path, settings: Settings) -> None:
    try:
        await in_thread(lambda: keep(fetch(box, number), settings))
    except KernelAssistantError as error:
        context.tell(f"the result of {box.name} is not here: {error.cause}", MessageType.Warning)
    ended(context, path)
