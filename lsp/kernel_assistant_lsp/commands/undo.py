"""Take applied kernels out of the user's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_assistant.apply import undo
from kernel_assistant.apply.takeback import decorated_while_typed
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.session.edits import FileSelection, undo_at
from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows import installed
from kernel_assistant_lsp.flows.arguments import class_of
from kernel_assistant_lsp.text.documents import from_disk
from kernel_assistant_lsp.text.snapshot import Snapshot


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return `{"undone", "path", "edited", "kept"}`. With `edited` the package is deleted when the file is saved,
    else it is deleted already."""
    snapshot, name = class_of(context, argument)
    if installed.is_of_library(snapshot):
        return await installed.undo(context, snapshot, name)
    reply = await _undo(context, snapshot, name)
    await context.look(snapshot.uri)
    return reply


async def _undo(context: Context, snapshot: Snapshot, name: str) -> dict[str, Any]:
    path = snapshot.path
    if context.documents.opened(snapshot.uri) is None or not context.abilities.applies_edits:
        return await in_thread(lambda: take_back(context, path, name))
    undone = await in_thread(lambda: undo(path, name, text=snapshot.text))
    if undone.text == snapshot.text and not await in_thread(lambda: _named_on_disk(snapshot, name)):
        # The editor's own undo removed the lines, so the file may never be saved again.
        return await in_thread(lambda: take_back(context, path, name))
    context.undone_when_saved.setdefault(path, set()).update(undone.classes)
    try:
        await context.edit(snapshot, undone.text, f"Without the kernels of {name}")
    except KernelAssistantError:
        context.undone_when_saved.pop(path, None)
        raise
    return {"undone": list(undone.classes), "path": str(path), "edited": True, "kept": list(undone.kept)}


def _named_on_disk(snapshot: Snapshot, name: str) -> bool:
    return name in decorated_while_typed(from_disk(snapshot.uri, snapshot.encoding).text)


def take_back(context: Context, path: Path, name: str) -> dict[str, Any]:
    """Undo on disk and delete the package. Call it in a thread."""
    undone = undo_at(context.history.store, FileSelection(path, name))
    return {"undone": list(undone.classes), "path": str(path), "edited": False, "kept": list(undone.kept)}
