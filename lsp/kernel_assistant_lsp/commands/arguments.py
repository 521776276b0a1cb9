"""Arguments of commands, checked."""

from __future__ import annotations

from typing import Any

from pygls.exceptions import JsonRpcException

from kernel_assistant.apply import is_installed
from kernel_assistant.errors import UsageError
from kernel_assistant.records import JobOutcome
from kernel_assistant.session.edits import Place, place_of
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


def own_class(context: Context, argument: dict[str, Any]) -> tuple[Snapshot, str]:
    """A class of the user's own file. Raises UsageError for one of an installed library, which nobody should edit."""
    snapshot, name = class_of(context, argument)
    if is_installed(snapshot.path):
        raise UsageError(
            f"{name} is of an installed library, whose file stays as it is",
            "name a program of yours: kernel-assistant apply JOB --into FILE",
        )
    return snapshot, name


def job_of(context: Context, argument: dict[str, Any]) -> JobRow:
    """The job named, else the newest that improved the class. Raises UsageError where there is none of this class.

    For a thread.
    """
    store = context.history.store
    snapshot, name = class_of(context, argument)
    if "job" in argument:
        row = store.job(text_of(argument, "job"))
        if place_of(row.task, row.options) != Place(snapshot.path, name):
            raise UsageError(f"job {row.id} is not about {name} in {snapshot.path.name}", "name a job of this class")
        return row
    for row in store.jobs_of(str(snapshot.path)):
        is_optimize = row.options.kind is JobKind.optimize and row.task.class_name == name
        if is_optimize and row.result is not None and row.result.outcome is JobOutcome.improved:
            return row
    raise UsageError(f"no job has improved {name}", "optimize it first")
