"""Jobs on the machine that the setting `host` names. The result is brought into the local store when it is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lsprotocol.types import MessageType

from kernel_assistant.config import Settings
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.records import KernelTask
from kernel_assistant.remote.away import Away, bring_back, connected, noted, send
from kernel_assistant.remote.box import Box
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobOptions
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.jobs.table import first_view
from kernel_assistant_lsp.start import ended


async def start_there(context: Context, task: KernelTask, options: JobOptions, settings: Settings) -> dict[str, Any]:
    """`{"job": "MACHINE:NUMBER", …}`. Raises what the other machine raises, and MissingError where ssh fails."""
    sent = await in_thread(lambda: send(task, options, settings))
    _follow(context, sent.box, sent.away, settings)
    return {**sent.answer, "job": sent.away.job}


async def follow_again(context: Context) -> None:
    """Jobs that an earlier server has left on the machine of the settings."""
    settings = context.settings(next(iter(context.folders()), None))
    if not settings.host:
        return
    mine = [one for one in await in_thread(lambda: noted(settings)) if _is_ours(context, one)]
    if not mine:
        return
    try:
        box = await in_thread(lambda: connected(settings))
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
    try:
        await in_thread(lambda: bring_back(box, away, settings))
    except KernelAssistantError as error:
        context.tell(f"the result of {box.name} is not here: {error.cause}", MessageType.Warning)
    ended(context, Path(away.path))


def _is_ours(context: Context, away: Away) -> bool:
    return away.host == context.settings(Path(away.path)).host and any(
        Path(away.path).is_relative_to(folder) for folder in context.folders()
    )
