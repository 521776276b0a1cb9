"""Converts a job's last event to a result or an exception, for front ends that wait for the job."""

from __future__ import annotations

from kernel_assistant.errors import Cancelled, InternalError, KernelAssistantError, MissingError, UsageError
from kernel_assistant.events import AnyEvent, JobFailed, JobFinished
from kernel_assistant.records import OptimizeResult

_KINDS: dict[int, type[KernelAssistantError]] = {
    kind.exit_code: kind for kind in (UsageError, MissingError, InternalError, Cancelled)
}


def result_of(event: AnyEvent) -> OptimizeResult | None:
    """Returns the result if `event` is the end of a job, else None. Raises the failure of a job that failed, with the
    class of its exit code."""
    if isinstance(event, JobFailed):
        raise _KINDS.get(event.exit_code, InternalError)(event.cause, event.next_step, detail=event.detail)
    return event.result if isinstance(event, JobFinished) else None
