"""Put the kernels of a job into the user's file, after a look at the diff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_assistant.remote.elsewhere import cannot_run_here
from kernel_assistant.session.edits import apply_job
from kernel_assistant.session.threads import in_thread

if TYPE_CHECKING:
    from kernel_assistant_tui.screens.main import MainScreen


async def apply(screen: MainScreen) -> None:
    from kernel_assistant_tui.screens.diff import DiffDialog

    store = screen.work.project.store
    row = await in_thread(lambda: store.job(screen.job_number))
    # Whoever says yes has read that no gain was confirmed, where that is so.
    planned, warnings = await in_thread(lambda: apply_job(store, row, dry_run=True, force=True))
    warnings = [*warnings, *filter(None, (await in_thread(lambda: cannot_run_here(row)),))]
    what = f"{planned.package.name}/ with {len(planned.files)} files is written beside it; undo takes all of it back"
    if planned.import_line:
        what += f". Add to your program: {planned.import_line}"
    dialog = DiffDialog(f"Apply job {row.id} to {planned.source}?", planned.diff, what, warnings, yes=("a", "apply"))
    if not await screen.app.push_screen_wait(dialog):
        return
    applied, _ = await in_thread(lambda: apply_job(store, row, dry_run=False, force=True))
    screen.say(f"{applied.class_name} in {applied.source.name} is served by {applied.package.name}/")
    await screen.following.look(frozenset({applied.source}))
