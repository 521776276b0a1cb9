"""Checks whether a job has a model that reads the user's messages."""

from __future__ import annotations

from kernel_assistant.config import Settings
from kernel_assistant.errors import KernelAssistantError, UsageError
from kernel_assistant.serving.errors import NoModelError
from kernel_assistant.serving.registry import find
from kernel_assistant.store import JobKind, JobRow

_NEXT = "start one that reads: kernel-assistant optimize FILE --policy model --endpoint URL"


def check_listens(row: JobRow, settings: Settings) -> None:
    """Raises UsageError with the reason if no model in the job reads messages."""
    reason = _deaf(row, settings)
    if reason:
        raise UsageError(f"job {row.id} reads nothing: {reason}", _NEXT)


def _deaf(row: JobRow, settings: Settings) -> str:
    """Returns the reason why the job reads no messages; "" if it has a model with more than one turn."""
    options = row.options
    if options.kind is not JobKind.optimize:
        return "it writes no kernels"
    if options.policy == "generator":
        return "its kernels are the generator's, no model works on it"
    try:
        entry = find(options.endpoint or options.model, settings)
    except NoModelError:
        return "no model is installed, its kernels are the generator's"
    except KernelAssistantError as error:
        return error.cause
    return "its model answers once and reads nothing after that" if entry.turns == 1 else ""
