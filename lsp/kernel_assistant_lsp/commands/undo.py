"""Take applied kernels out of the user's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_assistant.apply import undo
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.session.edits import Place, undo_at
from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.commands.arguments import class_of
from kernel_assistant_lsp.context import Context


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """`{"undone", "path", "edited", "kept"}`; with `edited` the package goes when the file has been saved."""
    snapshot, name = class_of(context, argument)
    path = snapshot.path
    if context.documents.opened(snapshot.uri) is None or not context.abilities.applies_edits:
        return await in_thread(lambda: take_back(context, path, name))
    undone = await in_thread(lambda: undo(path, name, text=snapshot.text))
    context.undone_when_saved.setdefault(path, set()).update(undone.classes)
    try:
        await context.edit(snapshot, undone.text, f"Without the kernels of {name}")
    except KernelAssistantError:
        context.undone_when_saved.pop(path, None)
        raise
    return {"undone": list(undone.classes), "path": str(path), "edited": True, "kept": list(undone.kept)}


def take_back(context: Context, path: Path, name: str) -> dict[str, Any]:
    """On disk, package and all. For a thread."""
    undone = undo_at(context.history.store, Place(path, name))
    return {"undone": list(undone.classes), "path": str(path), "edited": False, "kept": list(undone.kept)}
