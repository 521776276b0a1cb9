"""Export the kernels of a job in a form that does not need this tool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernel_assistant.session.edits import export_job
from kernel_assistant.session.threads import in_thread

if TYPE_CHECKING:
    from kernel_assistant_tui.screens.main import MainScreen


async def export(screen: MainScreen) -> None:
    from kernel_assistant_tui.dialogs.export import ExportDialog

    row = await in_thread(lambda: screen.work.project.store.job(screen.job_number))
    root = screen.work.root
    base = root if root.is_dir() else root.parent
    wanted = await screen.app.push_screen_wait(ExportDialog(row.id, base / f"{row.task.class_name.lower()}_kernels"))
    if wanted is None:
        return
    exported = await in_thread(lambda: export_job(row, wanted.form, base / Path(wanted.folder).expanduser()))
    for warning in exported.warnings:
        screen.say(f"verify would refuse it: {warning}", severity="warning")
    screen.say(f"{row.task.class_name} is in {exported.files[0]} ({len(exported.files)} files)")
