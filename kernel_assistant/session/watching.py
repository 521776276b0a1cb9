"""What a job's last event means to whoever waits for it."""

from __future__ import annotations

from kernel_assistant.errors import Cancelled, InternalError, KernelAssistantError, MissingError, UsageError
from kernel_assistant.events import JobFailed

_KINDS: dict[int, type[KernelAssistantError]] = {
    kind.exit_code: kind for kind in (UsageError, MissingError, InternalError, Cancelled)
}


def failure_of(event: JobFailed) -> KernelAssistantError:
    """The exception that ended the job, by its exit code."""
    return _KINDS.get(event.exit_code, InternalError)(event.cause, event.next_step, detail=event.detail)
