"""Apply the kernels of a job to the user's file, after showing the diff."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kernel_assistant.apply import is_installed
from kernel_assistant.remote.elsewhere import cannot_run_here
from kernel_assistant.session.edits import apply_job, place_of
from kernel_assistant.session.programs import programs_using
from kernel_assistant.session.threads import in_thread

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_assistant.store import JobRow
    from kernel_assistant_tui.screens.main import MainScreen


async def apply(screen: MainScreen) -> None:
    from kernel_assistant_tui.dialogs.diff import DiffDialog

    store = screen.work.project.store
    row = await in_thread(lambda: store.job(screen.job_to_apply))
    into: Path | None = None
    if is_installed(place_of(row.task, row.options).path):
        answer = await _into(screen, row)
        if answer is None:
            return
        into = screen.work.project.base / answer if answer else None
    # force: the dialog shows a warning if no gain was confirmed.
    put = partial(apply_job, store, row, force=True, into=into, project=screen.work.project.base)
    planned, warnings = await in_thread(lambda: put(dry_run=True))
    warnings = [*warnings, *filter(None, (await in_thread(lambda: cannot_run_here(row)),))]
    what = f"{planned.package.name}/ with {len(planned.files)} files is written beside it; undo takes all of it back"
    if planned.import_line:
        what += f". Add to your program: {planned.import_line}"
    dialog = DiffDialog(f"Apply job {row.id} to {planned.source}?", planned.diff, what, warnings, yes=("a", "apply"))
    if not await screen.app.push_screen_wait(dialog):
        return
    applied, _ = await in_thread(lambda: put(dry_run=False))
    screen.say(f"{applied.class_name} in {applied.source.name} is served by {applied.package.name}/")
    await screen.following.look(frozenset({applied.source, place_of(row.task, row.options).path}))


async def _into(screen: MainScreen, row: JobRow) -> str | None:
    """Ask which program imports the kernels. Return its path below the project, "" for none, None if cancelled."""
    from kernel_assistant_tui.dialogs.line import LineDialog

    selection, project = place_of(row.task, row.options), screen.work.project
    state_dir = project.settings.state_dir
    programs = await in_thread(lambda: programs_using(selection.path, selection.class_name, state_dir, (project.base,)))
    suggested = str(programs[0].relative_to(project.base)) if programs else ""
    title = f"Which program imports the kernels of {selection.class_name}?"
    hint = (
        "The library's file stays as it is. A package with the kernels is written beside the program, and one line "
        "that imports it into the program."
    )
    unnamed = "no file: you put the line in yourself"
    return await screen.app.push_screen_wait(
        LineDialog(title, suggested, hint, yes=("a", "go on"), placeholder=unnamed)
    )
