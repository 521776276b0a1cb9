"""Requests about running jobs: cancelling a job in its progress display, and the load of the device."""

from __future__ import annotations

import asyncio
from typing import Any

from lsprotocol import types

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobState
from kernel_assistant.targets import nvml
from kernel_assistant.targets.detect import detect
from kernel_assistant_lsp.commands.jobs import cancel
from kernel_assistant_lsp.context import Context
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


def device_status() -> dict[str, Any]:
    """Return the name of the device, its `utilisation` from 0 to 1 and its memory in bytes; None for values that it
    does not report. Call it in a thread."""
    try:
        device = detect("auto")
    except KernelAssistantError as error:
        return {"device": error.cause, "utilisation": None, "memory_used": None, "memory_total": None}
    used = _of_gpu(device.index) if device.target == "cuda" else _of_cpu()
    return {"device": device.name, "utilisation": used[0], "memory_used": used[1], "memory_total": used[2]}


def _of_gpu(index: int) -> tuple[float | None, int | None, int | None]:
    """Return (utilisation from 0 to 1, used memory, total memory) of a GPU by its CUDA index; None for values that
    the driver does not report."""
    with nvml.opened() as library:
        if library is None:
            return None, None, None
        try:
            handle = nvml.handles(library)[index]
            used, total = _memory(library, handle)
            busy = nvml.utilisation(library, handle)
        except (library.NVMLError, IndexError):
            return None, None, None
    return None if busy is None else busy / 100.0, used, total


def _memory(library: Any, handle: Any) -> tuple[int | None, int | None]:
    """Return the used and the total memory in bytes. Like in nvidia-smi, memory that the driver reserves does not
    count as used; old drivers count it."""
    for version in (library.nvmlMemory_v2, None):
        try:
            memory = library.nvmlDeviceGetMemoryInfo(handle, version)
        except library.NVMLError:
            continue
        return int(memory.used), int(memory.total)
    return None, None


def _of_cpu() -> tuple[float, int, int]:
    import psutil

    memory = psutil.virtual_memory()
    return psutil.cpu_percent() / 100.0, int(memory.total - memory.available), int(memory.total)
