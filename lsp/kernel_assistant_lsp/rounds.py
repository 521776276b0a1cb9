"""What other front ends do: every two seconds, jobs that they have begun and results that they have left."""

from __future__ import annotations

import asyncio

from kernel_assistant.config import Settings
from kernel_assistant.errors import KernelAssistantError, UsageError
from kernel_assistant.session.client import Client
from kernel_assistant.session.edits import place_of
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobRow, JobState
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.start import follow_row

_EVERY_S = 2.0


async def rounds(context: Context) -> None:
    """Until the server ends."""
    seen, looked = (0, 0), False
    while True:
        if context.trusted and not looked:
            looked = True
            context.spawn(_look_elsewhere(context))
        seen = await _round(context, seen)
        await asyncio.sleep(_EVERY_S)


async def _look_elsewhere(context: Context) -> None:
    """Once: jobs on another machine that an earlier server has left."""
    try:
        host = context.settings(next(iter(context.folders()), None)).host
    except UsageError:
        return  # said already, where settings were fetched
    if host:
        from kernel_assistant_lsp.elsewhere import follow_again

        await follow_again(context)


async def _round(context: Context, seen: tuple[int, int]) -> tuple[int, int]:
    if not context.trusted:
        return seen
    try:
        version = await in_thread(lambda: context.history.changed_by_others(seen))
        if version == seen:
            return seen
        settings = context.settings(None)
        for row in await in_thread(lambda: _active(context, settings)):
            if _is_ours(context, row):
                follow_row(context, row, settings)
    except (KernelAssistantError, OSError):
        return seen  # the store is locked, damaged or being moved: the next round tries again
    context.look_at_all()
    return version


def _active(context: Context, settings: Settings) -> list[JobRow]:
    """Jobs in the hands of a session host. What a dead one has left goes on when somebody asks for it."""
    rows = context.history.store.jobs(states=(JobState.queued, JobState.running))
    return rows if rows and Client(settings).status() is not None else []


def _is_ours(context: Context, row: JobRow) -> bool:
    """Whether a job is of this workspace or of an open file."""
    path = place_of(row.task, row.options).path
    inside = any(path.is_relative_to(folder) for folder in context.folders())
    return inside or context.documents.of_path(path) is not None
