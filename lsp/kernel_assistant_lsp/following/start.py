"""Submits jobs and follows them, on this machine or a remote one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from lsprotocol.types import MessageType

from kernel_assistant.config import Settings
from kernel_assistant.records import KernelTask
from kernel_assistant.session.client import Client
from kernel_assistant.session.edits import place_of
from kernel_assistant.session.reporting.check_report import CHECK_FILE, CheckStatus, read_check
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobOptions, JobRow
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.following.ended import ended
from kernel_assistant_lsp.jobs.table import first_view


async def start(context: Context, task: KernelTask, options: JobOptions, settings: Settings) -> dict[str, Any]:
    """Submits a job, on the remote machine if the settings name one, and follows it. Returns `{"job", "joined",
    "resumed", "ahead"}`: the job's number, whether the same job was running already, whether an interrupted job
    continues, and the number of jobs before it."""
    options = msgspec.structs.replace(options, free_wins=settings.free_wins)
    if settings.host:
        from kernel_assistant_lsp.following.elsewhere import start_there

        return await start_there(context, task, options, settings)
    client = Client(settings)
    submitted: dict[str, Any] = await in_thread(lambda: client.submit(task, options))
    job = str(submitted["job"])
    _watch(context, client, job, task, options)
    return submitted


def follow_row(context: Context, row: JobRow, settings: Settings) -> None:
    """Follow a job that another front end has started."""
    _watch(context, Client(settings), row.id, row.task, row.options)


def _watch(context: Context, client: Client, job: str, task: KernelTask, options: JobOptions) -> None:
    selection = place_of(task, options)
    view = first_view(job, selection.path, selection.class_name, kind=options.kind.value, budget=options.budget)
    context.jobs.watch(view, selection.path, client, job, lambda: _ended(context, job, selection.path))


def _ended(context: Context, job: str, path: Path) -> None:
    view = context.jobs.view(job)
    if view is not None and view.result is not None and CHECK_FILE in view.result.artifacts:
        context.spawn(_say_verdict(context, Path(view.result.artifacts[CHECK_FILE])))
    ended(context, path)


async def _say_verdict(context: Context, path: Path) -> None:
    """Shows the result of a check of applied kernels to the user. The result is read from the file `path`, because the
    job's events do not contain it."""
    check = await in_thread(lambda: read_check(path))
    kind = MessageType.Info if check.status is CheckStatus.ok else MessageType.Warning
    context.tell(f"{check.name}: {check.status.value}: {check.message}", kind)
