"""Arguments of commands, checked."""

from __future__ import annotations

from typing import Any

from pygls.exceptions import JsonRpcException

from kernel_assistant.errors import UsageError
from kernel_assistant.records import JobOutcome
from kernel_assistant.store import JobKind, JobRow
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.snapshot import Snapshot


def text_of(argument: dict[str, Any], name: str, default: str | None = None) -> str:
    """A string. Raises JsonRpcException (invalid parameters) where it is missing and has no default."""
    value = argument.get(name, default)
    if not isinstance(value, str):
        raise JsonRpcException(f"the argument needs {name!r}, a string", code=-32602)
    return value


def class_of(context: Context, argument: dict[str, Any]) -> tuple[Snapshot, str]:
    """The document and the class that a command is about."""
    return context.documents.get(text_of(argument, "uri")), text_of(argument, "class")


def job_of(context: Context, argument: dict[str, Any]) -> JobRow:
    """The job named, else the newest that improved the class. Raises UsageError where there is none. For a thread."""
    store = context.history.store
    if "job" in argument:
        return store.job(text_of(argument, "job"))
    snapshot, name = class_of(context, argument)
    for row in store.jobs_of(str(snapshot.path)):
        is_optimize = row.options.kind is JobKind.optimize and row.task.class_name == name
        if is_optimize and row.result is not None and row.result.outcome is JobOutcome.improved:
            return row
    raise UsageError(f"no job has improved {name}", "optimize it first")
