"""Looks every two seconds for jobs and results of other processes, such as the command line or another editor."""

from __future__ import annotations

import asyncio

from kernel_assistant.config import Settings
from kernel_assistant.errors import KernelAssistantError, UsageError
from kernel_assistant.session.client import Client
from kernel_assistant.session.edits import place_of
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobRow, JobState
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.following.start import follow_row

_EVERY_S = 2.0


async def rounds(context: Context) -> None:
    """Follows new jobs of other processes, and updates the open documents after changes in the store. Runs until the
    server ends."""
    seen, followed = (0, 0), False
    while True:
        if context.trusted and not followed:
            followed = True
            context.spawn(_follow_remote_jobs(context))
        seen = await _round(context, seen)
        context.followed.set()
        await asyncio.sleep(_EVERY_S)


async def _follow_remote_jobs(context: Context) -> None:
    """Follow the jobs that an earlier server started on a remote machine. Called once."""
    try:
        host = context.settings(next(iter(context.folders()), None)).host
    except UsageError:
        return  # reported already when the settings were fetched
    if host:
        from kernel_assistant_lsp.following.elsewhere import follow_again

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
    """Return the queued and running jobs if a session host is alive, else []. Jobs of a dead host are resumed only by
    the user."""
    rows = context.history.store.jobs(states=(JobState.queued, JobState.running))
    return rows if rows and Client(settings).status() is not None else []


def _is_ours(context: Context, row: JobRow) -> bool:
    """Return whether a job belongs to this workspace or to an open file."""
    path = place_of(row.task, row.options).path
    inside = any(path.is_relative_to(folder) for folder in context.folders())
    return inside or context.documents.of_path(path) is not None
