"""Commands that apply the kernels of a job to the user's file, or take applied kernels out of it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from lsprotocol.types import MessageType

from kernel_assistant.apply import ApplyResult, undo
from kernel_assistant.apply.edit import Edit
from kernel_assistant.apply.takeback import decorated_while_typed, take_back
from kernel_assistant.errors import KernelAssistantError, UsageError
from kernel_assistant.session.edits import FileSelection, apply_job, undo_at
from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows import installed
from kernel_assistant_lsp.flows.arguments import class_of, job_of
from kernel_assistant_lsp.flows.installed import is_of_library
from kernel_assistant_lsp.text.documents import from_disk
from kernel_assistant_lsp.text.snapshot import Snapshot


async def apply_kernels(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Puts the kernels of a job into the user's file.

    Returns `{"applied", "path", "package", "edited", "warnings"}`; `edited` is true if the change is in the editor and
    not saved yet. A class of an installed library is handled by `installed.apply`. `completed` is true if the user
    accepted an inline completion, which has inserted the decorator already; it is removed again if applying fails.
    """
    snapshot, name = class_of(context, argument)
    if is_of_library(snapshot):
        return await installed.apply(context, argument, snapshot, name)
    completed = argument.get("completed") is True
    try:
        return await _apply(context, argument, snapshot, without(snapshot.text, name) if completed else snapshot.text)
    except KernelAssistantError:
        if completed:
            with suppress(UsageError):  # the user has to see the error of applying, not this one
                await context.edit(snapshot, without(snapshot.text, name), f"Without the kernels of {name}")
        raise


def without(text: str, class_name: str) -> str:
    """Return `text` without the decorator that loads the kernels of a class."""
    return take_back(text, class_name, Edit(hunks=()), None)


async def _apply(context: Context, argument: dict[str, Any], snapshot: Snapshot, text: str) -> dict[str, Any]:
    row = await in_thread(lambda: job_of(context, argument))
    in_editor = _in_editor(context, snapshot)
    force = argument.get("force") is True
    applied, warnings = await in_thread(
        lambda: apply_job(context.history.store, row, dry_run=False, force=force, text=text if in_editor else None)
    )
    if in_editor:
        await _edit(context, snapshot, applied)
    for warning in warnings:
        context.tell(warning, MessageType.Warning)
    await context.look(snapshot.uri)
    return installed.answer(applied, row.id, warnings, edited=in_editor)


def _in_editor(context: Context, snapshot: Snapshot) -> bool:
    """Return whether the editor has to make the edit, because it has the file open. Raises UsageError if the editor
    accepts no edits and has unsaved changes."""
    if context.documents.opened(snapshot.uri) is None:
        return False
    if context.abilities.applies_edits:
        return True
    if from_disk(snapshot.uri, snapshot.encoding).text != snapshot.text:
        raise UsageError(f"{snapshot.path.name} has unsaved changes, and this editor takes no edits", "save it first")
    return False


async def _edit(context: Context, snapshot: Snapshot, applied: ApplyResult) -> None:
    """Lets the editor insert the lines of `applied`. The package of kernels exists already; it is deleted again if the
    editor refuses the edit. Raises UsageError then."""
    try:
        await context.edit(snapshot, applied.text, f"Kernels of {applied.class_name}")
    except UsageError:
        await in_thread(lambda: _take_back(context, applied))
        raise


def _take_back(context: Context, applied: ApplyResult) -> None:
    try:
        undo_at(context.history.store, FileSelection(applied.source, applied.class_name))
    except KernelAssistantError:
        pass  # the user has to see why the edit was refused, not this error


async def undo_kernels(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Takes applied kernels out of the user's file.

    Returns `{"undone", "path", "edited", "kept"}`: the classes, the file, and the files that stay in the package
    because they were changed by hand. If `edited` is true, the change is in the editor, and the package is deleted when
    the file is saved; otherwise it is deleted already.
    """
    snapshot, name = class_of(context, argument)
    if installed.is_of_library(snapshot):
        return await installed.undo(context, snapshot, name)
    reply = await _undo(context, snapshot, name)
    await context.look(snapshot.uri)
    return reply


async def _undo(context: Context, snapshot: Snapshot, name: str) -> dict[str, Any]:
    path = snapshot.path
    if context.documents.opened(snapshot.uri) is None or not context.abilities.applies_edits:
        return await in_thread(lambda: undo_on_disk(context, path, name))
    undone = await in_thread(lambda: undo(path, name, text=snapshot.text))
    if undone.text == snapshot.text and not await in_thread(lambda: _named_on_disk(snapshot, name)):
        # The editor's own undo removed the lines, so the file may never be saved again.
        return await in_thread(lambda: undo_on_disk(context, path, name))
    context.undone_when_saved.setdefault(path, set()).update(undone.classes)
    try:
        await context.edit(snapshot, undone.text, f"Without the kernels of {name}")
    except KernelAssistantError:
        context.undone_when_saved.pop(path, None)
        raise
    return {"undone": list(undone.classes), "path": str(path), "edited": True, "kept": list(undone.kept)}


def _named_on_disk(snapshot: Snapshot, name: str) -> bool:
    return name in decorated_while_typed(from_disk(snapshot.uri, snapshot.encoding).text)


def undo_on_disk(context: Context, path: Path, name: str) -> dict[str, Any]:
    """Removes the applied kernels of class `name` from the file on disk and deletes their package. Returns the answer
    of `undo_kernels`. Call it in a thread."""
    undone = undo_at(context.history.store, FileSelection(path, name))
    return {"undone": list(undone.classes), "path": str(path), "edited": False, "kept": list(undone.kept)}
