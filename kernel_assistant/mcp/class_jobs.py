"""Runs the jobs for all configurations of a scanned class in one tool call."""

from __future__ import annotations

from typing import Any

import anyio
from anyio import to_thread

from kernel_assistant.config import Settings
from kernel_assistant.errors import Cancelled, KernelAssistantError
from kernel_assistant.mcp.jobs import Report, finish, submit
from kernel_assistant.session.client import Client
from kernel_assistant.session.scanning.class_tasks import as_document, class_tasks
from kernel_assistant.session.scanning.program_gain import ClassGain, ConfigurationGain
from kernel_assistant.session.scanning.recorded import ClassOfScan


async def submit_class(scanned_class: ClassOfScan, settings: Settings) -> list[str]:
    """Submit a job for each configuration without waiting for the results. Returns the numbers of the jobs."""
    tasks = await to_thread.run_sync(class_tasks, scanned_class.scan, scanned_class.row, settings)
    return [await submit(settings, one.task, one.options) for one in tasks]


async def finish_class(scanned_class: ClassOfScan, settings: Settings, report: Report) -> ClassGain:
    """Submit the jobs and wait for one after another. If the call is cancelled, all jobs are cancelled; a job that
    fails does not stop the others."""
    tasks = await to_thread.run_sync(class_tasks, scanned_class.scan, scanned_class.row, settings)
    jobs = [await submit(settings, one.task, one.options) for one in tasks]
    parts: list[ConfigurationGain] = []
    try:
        for one, job in zip(tasks, jobs, strict=True):
            try:
                parts.append(one.gain(job, await finish(settings, job, report, cancel_with_call=True)))
            except Cancelled:
                raise
            except KernelAssistantError as error:
                parts.append(one.gain(job, failure=error))
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            for job in jobs[len(parts) + 1 :]:
                await to_thread.run_sync(Client(settings).cancel, job)
        raise
    return ClassGain(scanned_class.row, tuple(parts))


def served_answer(scanned_class: ClassOfScan, gain: ClassGain) -> dict[str, Any]:
    """The part of the answer that is about all jobs of a class together."""
    return {
        "scan": scanned_class.scan.id,
        "calls": gain.row.calls,
        "served_calls": gain.served_calls,
        "configurations": [as_document(part) for part in gain.parts],
        "apply": scanned_class.scan.spec(gain.row),
    }
