"""Reads and checks the arguments of commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pygls.exceptions import JsonRpcException

from kernel_assistant.errors import UsageError
from kernel_assistant.records import OptimizeResult
from kernel_assistant.session.edits import FileSelection, place_of
from kernel_assistant.session.kinds.outcome import is_unconfirmed
from kernel_assistant.store import JobKind, JobRow
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.text.homeless import check_file
from kernel_assistant_lsp.text.snapshot import Snapshot


def text_of(argument: dict[str, Any], name: str, default: str | None = None) -> str:
    """Return a string argument. Raises JsonRpcException (invalid parameters) if it is missing without a default, or
    not a string."""
    value = argument.get(name, default)
    if not isinstance(value, str):
        raise JsonRpcException(f"the argument needs {name!r}, a string", code=-32602)
    return value


def class_of(context: Context, argument: dict[str, Any]) -> tuple[Snapshot, str]:
    """Return the document and the class name of a command. Raises UsageError if the document is not a file."""
    snapshot, name = context.documents.get(text_of(argument, "uri")), text_of(argument, "class")
    check_file(snapshot, name)
    return snapshot, name


def job_of(context: Context, argument: dict[str, Any]) -> JobRow:
    """Return the job that `argument` names, else the newest job of the class with a gain. Call it in a thread.

    Raises UsageError if there is no such job of this class.
    """
    return _job(context, argument, lambda result: result.applicable, "no job has improved {}")


def unconfirmed_job_of(context: Context, argument: dict[str, Any]) -> JobRow:
    """Returns the job that `argument` names, else the newest job of the class whose candidate may have a gain that is
    not confirmed. Call it in a thread. Raises UsageError if there is none."""
    return _job(context, argument, is_unconfirmed, "no job kept a candidate of {} whose gain is not known")


def _job(context: Context, argument: dict[str, Any], fits: Callable[[OptimizeResult], bool], without: str) -> JobRow:
    store = context.history.store
    snapshot, name = class_of(context, argument)
    if "job" in argument:
        row = store.job(text_of(argument, "job"))
        if place_of(row.task, row.options) != FileSelection(snapshot.path, name):
            raise UsageError(f"job {row.id} is not about {name} in {snapshot.path.name}", "name a job of this class")
        return row
    for row in store.jobs_of(str(snapshot.path)):
        is_optimize = row.options.kind is JobKind.optimize and row.task.class_name == name
        if is_optimize and row.result is not None and fits(row.result):
            return row
    raise UsageError(without.format(name), "optimize it first")
