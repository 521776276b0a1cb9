"""Requests about running jobs: cancelling one by its progress display, and the load of the device."""

from __future__ import annotations

import asyncio
from typing import Any

from lsprotocol import types

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobState
from kernel_assistant_lsp.commands.jobs import cancel
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.jobs.device import device_status
from kernel_assistant_lsp.names import STATUS_NOTIFICATION, WATCH_STATUS

_EVERY_S = 2.0


def register(context: Context) -> None:
    @context.server.feature(types.WINDOW_WORK_DONE_PROGRESS_CANCEL)
    async def work_done_cancel(params: types.WorkDoneProgressCancelParams) -> None:
        job = context.work_done.job_of(params.token)
        if job is None:
            return
        try:
            await cancel(context, job)
        except KernelAssistantError as error:
            context.tell(f"{error.cause}: {error.next_step}", types.MessageType.Error)

    # Reports the load of the device every two seconds while the client watches.
    watching: list[asyncio.Task[None]] = []

    @context.server.feature(WATCH_STATUS)
    def watch_status(params: Any) -> None:
        on = bool(getattr(params, "on", False))
        while watching:
            watching.pop().cancel()
        if on:
            watching.append(asyncio.get_running_loop().create_task(_send(context)))


async def _send(context: Context) -> None:
    while True:
        if context.trusted:
            status = await in_thread(device_status)
            running = next((view for view in context.jobs.active() if view.state is JobState.running), None)
            running_job = None if running is None else running.job
            context.server.protocol.notify(STATUS_NOTIFICATION, {**status, "running": running_job})
        await asyncio.sleep(_EVERY_S)
