"""Actions on the kernels of a job: verify and confirm them, apply them, take them out of the file, export them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_assistant.apply import is_installed
from kernel_assistant.remote.elsewhere import cannot_run_here
from kernel_assistant.session.edits import applied_place, apply_job, export_job, place_of, undo_at
from kernel_assistant.session.kinds.again import prepare_again, prepare_confirm, verdict_in
from kernel_assistant.session.programs import programs_using
from kernel_assistant.session.reporting.check_report import ClassCheck
from kernel_assistant.session.reporting.verdicts import verdict
from kernel_assistant.session.threads import in_thread
from kernel_assistant_tui.jobs import OpenJob

if TYPE_CHECKING:
    from kernel_assistant.store import JobRow
    from kernel_assistant_tui.screens.main import MainScreen


async def verify(screen: MainScreen) -> None:
    """Verify the kernels that are applied in the file; if there are none, verify the candidate of the job."""
    module, store, number = screen.subject, screen.work.project.store, screen.job_number
    if module is None:
        return
    # Applied kernels are on this machine, and so is the device that they are for.
    settings = screen.work.settings_for(module.path, {"host": "none"})
    projects = (screen.work.project.base,)
    prepared = await in_thread(
        lambda: prepare_again(module.path, module.name, settings, lambda: store.job(number), projects=projects)
    )
    if isinstance(prepared, ClassCheck):
        screen.say(words_of(prepared), severity="warning")
        return
    await screen.following.submit(*prepared, settings)
    screen.go("episode")


def verdict_of(job: OpenJob) -> str:
    """Describes how a job ended. Reads the report of a check from disk, so call it in a thread. Raises StoreError."""
    result = job.view.result
    if result is None:
        return job.view.state.value
    check = verdict_in(result.artifacts)
    return verdict(result) if check is None else words_of(check)


def words_of(check: ClassCheck) -> str:
    parts = [f"{check.name}: {check.status.value.replace('_', ' ')}: {check.message}", check.next_step]
    return "\n".join(part for part in parts if part)


async def confirm(screen: MainScreen) -> None:
    """Starts a job in a new tab that measures a candidate in full: that of the current job, or of the chosen class's
    job, whichever has a gain that is not confirmed."""
    job, module, store = screen.job, screen.subject, screen.work.project.store
    if module is None:
        return
    number = job.number if job is not None and job.is_unconfirmed else module.state.unconfirmed
    settings = screen.work.settings_for(module.path, {"host": "none"})
    prepared = await in_thread(lambda: prepare_confirm(store, store.job(number)))
    await screen.following.submit(*prepared, settings)
    screen.go("episode")


async def apply(screen: MainScreen) -> None:
    """Write the kernels of a job into the user's file, after showing the diff."""
    from kernel_assistant_tui.dialogs.questions import DiffDialog

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
    """Ask which program is to import the kernels. Return its path below the project, "" for no program, None if
    cancelled."""
    from kernel_assistant_tui.dialogs.questions import LineDialog

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


async def undo(screen: MainScreen) -> None:
    """Undo applied kernels, after showing the diff."""
    from kernel_assistant_tui.dialogs.questions import DiffDialog

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


async def export(screen: MainScreen) -> None:
    """Writes the kernels of a job to a folder in a format that does not need this tool, after asking for both."""
    from kernel_assistant_tui.dialogs.questions import ExportDialog

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
