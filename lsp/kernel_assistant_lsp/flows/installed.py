"""Apply and undo kernels for classes of installed libraries: a program of the user imports the kernels, and the
library's file does not change."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lsprotocol import types

from kernel_assistant.apply import ApplyResult, is_installed
from kernel_assistant.errors import UsageError
from kernel_assistant.session.edits import applied_place, apply_job, importing_files, undo_at
from kernel_assistant.session.programs import programs_using
from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.arguments import job_of, text_of
from kernel_assistant_lsp.flows.asking import ask, errors_shown
from kernel_assistant_lsp.names import APPLY
from kernel_assistant_lsp.text.documents import from_disk, path_of, uri_of
from kernel_assistant_lsp.text.snapshot import Snapshot


def is_of_library(snapshot: Snapshot) -> bool:
    return is_installed(snapshot.path)


def check_own(snapshot: Snapshot, name: str) -> None:
    """Raises UsageError for a class of a library, whose file must not be edited."""
    if is_of_library(snapshot):
        raise UsageError(_stays(name), "record its inputs from a program of yours that uses it")


def _stays(name: str) -> str:
    return f"{name} is of an installed library, whose file stays as it is"


def project_of(context: Context) -> Path:
    """Returns the folder for a package of kernels that no program imports yet: the first folder of the workspace, else
    the current one."""
    return next(iter(context.folders()), Path.cwd())


async def apply(context: Context, argument: dict[str, Any], snapshot: Snapshot, name: str) -> dict[str, Any]:
    """Applies kernels for a class of an installed library. The argument `into` is the user's program that will import
    them, "" for none. Returns the same as the command `apply`; if `into` is missing, `{"applied": null, "needs":
    "program", "message", "nextStep", "choices"}`."""
    row = await in_thread(lambda: job_of(context, argument))
    if "into" not in argument:
        return await _needed(context, {**argument, "job": row.id}, snapshot, name)
    given = text_of(argument, "into")
    into = path_of(given) if given else None
    _check_saved(context, filter(None, (into,)))
    store, force = context.history.store, argument.get("force") is True
    applied, warnings = await in_thread(
        lambda: apply_job(store, row, dry_run=False, force=force, into=into, project=project_of(context))
    )
    for warning in warnings:
        context.tell(warning, types.MessageType.Warning)
    await context.look(snapshot.uri)
    if not context.abilities.job_events:
        added = f"add this line to your program: {applied.import_line}"
        context.tell(added if into is None else f"{into.name} imports {applied.package.name} now")
    return answer(applied, row.id, warnings, edited=False)


def answer(applied: ApplyResult, job: str, warnings: list[str], *, edited: bool) -> dict[str, Any]:
    """Return the answer of the command `apply`. `edited` says that the change is in the editor, not on disk."""
    return {
        "applied": applied.class_name,
        "job": job,
        "path": str(applied.source),
        "package": str(applied.package),
        "importLine": applied.import_line,
        "edited": edited,
        "warnings": warnings,
    }


async def undo(context: Context, snapshot: Snapshot, name: str) -> dict[str, Any]:
    """Removes the package that replaces a library's class. Returns the same as the command `undo`. Raises UsageError if
    no package of the workspace replaces the class."""

    def take_back() -> dict[str, Any]:
        selection = applied_place(snapshot.path, name, context.folders())
        if selection.path == snapshot.path:
            raise UsageError(f"no kernels are applied to {name} in this workspace", "apply some first")
        _check_saved(context, importing_files(selection))
        undone = undo_at(context.history.store, selection)
        return {"undone": list(undone.classes), "path": str(selection.path), "edited": False, "kept": list(undone.kept)}

    answer = await in_thread(take_back)
    await context.look(snapshot.uri)
    return answer


def _check_saved(context: Context, paths: Iterable[Path]) -> None:
    """Raises UsageError if one of the files `paths`, which are to be edited on disk, has unsaved changes in the
    editor."""
    for path in paths:
        shown = context.documents.of_path(path)
        if shown is not None and from_disk(shown.uri, shown.encoding).text != shown.text:
            raise UsageError(f"{path.name} has unsaved changes", "save it first")


async def _needed(context: Context, argument: dict[str, Any], snapshot: Snapshot, name: str) -> dict[str, Any]:
    state_dir, folders = context.settings(snapshot.path).state_dir, context.folders()
    programs = await in_thread(lambda: programs_using(snapshot.path, name, state_dir, folders))
    titles = {f"Into {path.name}": uri_of(path) for path in programs} | {"Into no file: tell me the line": ""}
    needed = {
        "applied": None,
        "needs": "program",
        "message": _stays(name),
        "nextStep": "name the program of yours that imports its kernels",
        "choices": [
            {"title": title, "command": APPLY, "arguments": [{**argument, "into": into}]}
            for title, into in titles.items()
        ],
    }
    if context.abilities.messages_with_choices:
        context.spawn(_offer(context, needed))
    return needed


async def _offer(context: Context, needed: dict[str, Any]) -> None:
    """Ask the user which program is to import the kernels. Used for clients that show no dialogs of their own."""
    choices = {one["title"]: (one["command"], one["arguments"][0]) for one in needed["choices"]}
    with errors_shown(context):
        await ask(context, f"{needed['message']}: {needed['nextStep']}", choices)
