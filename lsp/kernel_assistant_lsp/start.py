"""Submitting a job and following it, here or on another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from lsprotocol.types import MessageType

from kernel_assistant.config import Settings
from kernel_assistant.records import KernelTask
from kernel_assistant.session.check_report import CHECK_FILE, CheckStatus, read_check
from kernel_assistant.session.client import Client
from kernel_assistant.session.edits import place_of
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobOptions, JobRow
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.documents import uri_of
from kernel_assistant_lsp.jobs.table import first_view


async def start(context: Context, task: KernelTask, options: JobOptions, settings: Settings) -> dict[str, Any]:
    """`{"job", "joined", "resumed", "ahead"}`."""
    options = msgspec.structs.replace(options, free_wins=settings.free_wins)
    if settings.host:
        from kernel_assistant_lsp.elsewhere import start_there

        return await start_there(context, task, options, settings)
    client = Client(settings)
    submitted: dict[str, Any] = await in_thread(lambda: client.submit(task, options))
    job = str(submitted["job"])
    _watch(context, client, job, task, options)
    return submitted


def follow_row(context: Context, row: JobRow, settings: Settings) -> None:
    """Follow a job that somebody else has begun."""
    _watch(context, Client(settings), row.id, row.task, row.options)


def _watch(context: Context, client: Client, job: str, task: KernelTask, options: JobOptions) -> None:
    place = place_of(task, options)
    view = first_view(job, place.path, place.class_name, kind=options.kind.value, budget=options.budget)
    context.jobs.watch(view, place.path, client, job, lambda: _ended(context, job, place.path))


def _ended(context: Context, job: str, path: Path) -> None:
    view = context.jobs.view(job)
    if view is not None and view.result is not None and CHECK_FILE in view.result.artifacts:
        context.spawn(_say_verdict(context, Path(view.result.artifacts[CHECK_FILE])))
    ended(context, path)


async def _say_verdict(context: Context, path: Path) -> None:
    """Of a check of applied kernels, which its events do not tell."""
    check = await in_thread(lambda: read_check(path))
    kind = MessageType.Info if check.status is CheckStatus.ok else MessageType.Warning
    context.tell(f"{check.name}: {check.status.value}: {check.message}", kind)


def ended(context: Context, path: Path) -> None:
    """A job of `path` is over: its document is looked at again."""
    context.look_soon(uri_of(path), 0.0)
    for snapshot in context.documents.all():
        if snapshot.path == path:
            context.look_soon(snapshot.uri, 0.0)
    context.refresh()
