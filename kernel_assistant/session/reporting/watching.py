"""Converts a job's last event to a result or an exception, for front ends that wait for the job."""

from __future__ import annotations

from kernel_assistant.errors import kind_of
from kernel_assistant.events import AnyEvent, JobFailed, JobFinished
from kernel_assistant.records import OptimizeResult


def result_of(event: AnyEvent) -> OptimizeResult | None:
    """Returns the result if `event` is the last event of a job, else None. If the job failed, raises the exception
    class that belongs to its exit code."""
    if isinstance(event, JobFailed):
        raise kind_of(event.exit_code)(event.cause, event.next_step, detail=event.detail)
    return event.result if isinstance(event, JobFinished) else None
