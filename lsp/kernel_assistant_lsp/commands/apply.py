"""Put the kernels of a job into the user's file."""

from __future__ import annotations

from typing import Any

from lsprotocol.types import MessageType

from kernel_assistant.apply import Applied
from kernel_assistant.errors import KernelAssistantError, UsageError
from kernel_assistant.session.edits import Place, apply_job, undo_at
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobRow
from kernel_assistant_lsp.commands.arguments import job_of, own_class
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.documents import from_disk
from kernel_assistant_lsp.snapshot import Snapshot


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """`{"applied", "path", "package", "edited", "warnings"}`; `edited`: the lines are in the editor, not saved yet."""
    snapshot, _ = own_class(context, argument)
    row = await in_thread(lambda: job_of(context, argument))
    in_editor = _in_editor(context, snapshot)
    text = snapshot.text if in_editor else None
    force = argument.get("force") is True
    applied, warnings = await in_thread(
        lambda: apply_job(context.history.store, row, dry_run=False, force=force, text=text)
    )
    if in_editor and not applied.import_line:
        await _edit(context, snapshot, applied, row)
    for warning in warnings:
        context.tell(warning, MessageType.Warning)
    context.look_soon(snapshot.uri, 0.0)
    return {
        "applied": applied.class_name,
        "job": row.id,
        "path": str(applied.source),
        "package": str(applied.package),
        "importLine": applied.import_line,
        "edited": in_editor and not applied.import_line,
        "warnings": warnings,
    }


def _in_editor(context: Context, snapshot: Snapshot) -> bool:
    """Whether the editor has to make the edit. Raises UsageError where it should but cannot."""
    if context.documents.opened(snapshot.uri) is None:
        return False
    if context.abilities.applies_edits:
        return True
    if from_disk(snapshot.uri, snapshot.encoding).text != snapshot.text:
        raise UsageError(f"{snapshot.path.name} has unsaved changes, and this editor takes no edits", "save it first")
    return False


async def _edit(context: Context, snapshot: Snapshot, applied: Applied, row: JobRow) -> None:
    """The package is there; where the editor does not take the lines it goes again."""
    try:
        await context.edit(snapshot, applied.text, f"Kernels of {applied.class_name}")
    except UsageError:
        await in_thread(lambda: _take_back(context, applied))
        raise


def _take_back(context: Context, applied: Applied) -> None:
    try:
        undo_at(context.history.store, Place(applied.source, applied.class_name))
    except KernelAssistantError:
        pass  # the refusal that led here is what the user has to know
