"""Take applied kernels back, after a look at the diff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_assistant.session.edits import Place, undo_at
from kernel_assistant.session.threads import in_thread

if TYPE_CHECKING:
    from kernel_assistant_tui.screens.main import MainScreen


async def undo(screen: MainScreen) -> None:
    from kernel_assistant_tui.screens.diff import DiffDialog

    module = screen.subject
    if module is None:
        return
    store, place = screen.work.project.store, Place(module.path, module.name)
    planned = await in_thread(lambda: undo_at(store, place, dry_run=True))
    what = f"{len(planned.removed)} files of ours beside it are removed"
    if planned.kept:
        what += f"; kept, since they were changed: {', '.join(planned.kept)}"
    title = f"Take the kernels of {', '.join(planned.classes)} out of {planned.source}?"
    if not await screen.app.push_screen_wait(DiffDialog(title, planned.diff, what, [], yes=("u", "undo"))):
        return
    undone = await in_thread(lambda: undo_at(store, place))
    state = "byte for byte as before" if undone.restored else "without the kernels; other changes stay"
    screen.say(f"{undone.source.name} is {state}")
    await screen.following.look(frozenset({undone.source}))
