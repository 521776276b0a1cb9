"""Jobs on the remote machine that the setting `host` names. At their end, the results are copied into the store on this
machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lsprotocol.types import MessageType

from kernel_assistant.config import Settings
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.records import KernelTask
from kernel_assistant.remote.job import RemoteJob, bring_back, connected, noted, send
from kernel_assistant.remote.machine import RemoteMachine
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobOptions
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.following.ended import ended
from kernel_assistant_lsp.jobs.table import first_view


async def start_there(context: Context, task: KernelTask, options: JobOptions, settings: Settings) -> dict[str, Any]:
    """Submits a job to the remote machine and follows it. Returns the host's answer (see `start`), with
    "MACHINE:NUMBER" as the `job`. Raises the exceptions of the remote host, and MissingError if ssh fails."""
    sent = await in_thread(lambda: send(task, options, settings))
    _follow(context, sent.machine, sent.job, settings)
    return {**sent.answer, "job": sent.job.job}


async def follow_again(context: Context) -> None:
    """Follow the jobs of this workspace that an earlier server has started on the remote machine of the settings."""
    settings = context.settings(next(iter(context.folders()), None))
    if not settings.host:
        return
    mine = [one for one in await in_thread(lambda: noted(settings)) if _is_ours(context, one)]
    if not mine:
        return
    try:
        machine = await in_thread(lambda: connected(settings))
    except KernelAssistantError as error:
        context.tell(f"{len(mine)} jobs on {settings.host} cannot be followed: {error.cause}", MessageType.Warning)
        return
    for one in mine:
        _follow(context, machine, one, settings)


def _follow(context: Context, machine: RemoteMachine, remote_job: RemoteJob, settings: Settings) -> None:
    path = Path(remote_job.path)
    view = first_view(remote_job.job, path, remote_job.class_name, kind=remote_job.kind, budget=remote_job.budget)

    def end() -> None:
        context.spawn(_bring_back(context, machine, remote_job, settings))

    context.jobs.watch(view, path, machine.client, remote_job.number, end)


async def _bring_back(context: Context, machine: RemoteMachine, remote_job: RemoteJob, settings: Settings) -> None:
    try:
        await in_thread(lambda: bring_back(machine, remote_job, settings))
    except KernelAssistantError as error:
        context.tell(f"the result of {machine.name} is not here: {error.cause}", MessageType.Warning)
    ended(context, Path(remote_job.path))


def _is_ours(context: Context, remote_job: RemoteJob) -> bool:
    return remote_job.host == context.settings(Path(remote_job.path)).host and any(
        Path(remote_job.path).is_relative_to(folder) for folder in context.folders()
    )
