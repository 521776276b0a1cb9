"""Undo applied kernels, after showing the diff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_assistant.session.edits import applied_place, undo_at
from kernel_assistant.session.threads import in_thread

if TYPE_CHECKING:
    from kernel_assistant_tui.screens.main import MainScreen


async def undo(screen: MainScreen) -> None:
    from kernel_assistant_tui.dialogs.diff import DiffDialog

    module = screen.subject
    if module is None:
        return
    store = screen.work.project.store
    selection = await in_thread(lambda: applied_place(module.path, module.name, (screen.work.project.base,)))
    in_file = selection.path == module.path
    planned = await in_thread(lambda: undo_at(store, selection, dry_run=True))
    what = f"{len(planned.removed)} files of ours {'beside' if in_file else 'in'} it are removed"
    if planned.kept:
        what += f"; kept, since they were changed: {', '.join(planned.kept)}"
    title = f"Take the kernels of {', '.join(planned.classes)} out of {planned.source}?"
    if not await screen.app.push_screen_wait(DiffDialog(title, planned.diff, what, [], yes=("u", "undo"))):
        return
    undone = await in_thread(lambda: undo_at(store, selection))
    state = "is byte for byte as before" if undone.restored else "is without the kernels; other changes stay"
    screen.say(f"{undone.source.name} {state if in_file else f'replaces {module.name} no more'}")
    await screen.following.look(frozenset({module.path}))
