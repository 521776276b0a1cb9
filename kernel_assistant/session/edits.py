"""Applying a job and undoing it, with a note in the store. For every front end; runs in the front end's process,
because the file is the user's and so are the rights to it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.apply import (
    Applied,
    Exported,
    Options,
    Undone,
    apply_outside,
    apply_result,
    export,
    is_installed,
    undo,
    undo_outside,
)
from kernel_assistant.apply.applied import source_text
from kernel_assistant.apply.takeback import decorated_classes
from kernel_assistant.errors import UsageError
from kernel_assistant.records import JobOutcome, KernelTask
from kernel_assistant.session.applied_timing import APPLIED_FILE, read_applied
from kernel_assistant.session.outcome import doubt_of
from kernel_assistant.source.build import import_location
from kernel_assistant.store import JobOptions, JobRow, Store


@dataclass(frozen=True)
class Place:
    """A file, and one of its classes or "" for all."""

    path: Path
    class_name: str


def find_job(store: Store, what: str) -> JobRow:
    """The job that `what` names: a number, `last`, or the newest improved job of `FILE[:CLASS]`."""
    if what == "last" or what.isdigit():
        return store.job(what)
    place = _place(what)
    rows = [row for row in store.jobs(limit=100_000) if _is_of(row, place)]
    for row in rows:
        if row.result is not None and row.result.outcome is JobOutcome.improved:
            return row
    cause = "no job has improved" if rows else "there is no job for"
    raise UsageError(f"{cause} {what}", f"kernel-assistant optimize {what}")


def apply_job(
    store: Store,
    row: JobRow,
    *,
    dry_run: bool,
    force: bool = False,
    into: Path | None = None,
    text: str | None = None,
) -> tuple[Applied, list[str]]:
    """Edit the user's file; what was done, and warnings. Raises UsageError where there is nothing worth applying.

    A class of an installed library, and any class with `into`, is replaced from outside: see apply/outside.py.
    `text` is the file as it is in an editor, which puts the lines in itself: see `apply_result`.
    """
    if row.result is None or "plan.json" not in row.result.artifacts:
        raise UsageError(f"job {row.id} has no candidate to apply", f"kernel-assistant show {row.id}")
    warnings = _doubts(row, force)
    folder = Path(row.result.artifacts["plan.json"]).parent
    timing = read_applied(folder / APPLIED_FILE)
    if timing is None:
        warnings.append("the edited file was not timed; its guard may cost more than the kernels gain")
    options = timing.options if timing else Options()
    source = place_of(row.task, row.options).path
    outside = into is not None or row.task.installed or is_installed(source)
    if outside:
        project = Path(import_location(into.absolute())[1]) if into is not None else Path.cwd()
        applied = apply_outside(folder, source, project, into=into, dry_run=dry_run, options=options)
    else:
        applied = apply_result(folder, source, dry_run=dry_run, options=options, text=text)
    if not dry_run:
        document = {"class": applied.class_name, "package": str(applied.package), "diff": applied.diff}
        store.add_edit(str(applied.package if outside else applied.source), row.id, json.dumps(document))
    return applied, warnings


def export_job(row: JobRow, kind: str, folder: Path) -> Exported:
    """The job's best candidate in a form that needs nothing of this tool. Raises UsageError."""
    if row.result is None or "plan.json" not in row.result.artifacts:
        raise UsageError(f"job {row.id} has no candidate to export", f"kernel-assistant show {row.id}")
    result = Path(row.result.artifacts["plan.json"]).parent
    timing = read_applied(result / APPLIED_FILE)
    text = source_text(place_of(row.task, row.options).path) if row.options.source_path else None
    return export(result, kind, folder, options=timing.options if timing else None, text=text)


def find_place(store: Store, what: str) -> Place:
    """Where `undo WHAT` works: a file, or where a job was applied; "" is what was applied last and is there still."""
    if not what:
        places = (Place(Path(edit.path), str(json.loads(edit.document)["class"])) for edit in store.edits())
        if (last := next(filter(_is_applied, places), None)) is not None:
            return last
        raise UsageError("nothing is applied", "kernel-assistant apply last")
    if what != "last" and not what.isdigit():
        return _place(what)
    row = store.job(what)
    for edit in store.edits(job=row.id):
        return Place(Path(edit.path), str(json.loads(edit.document)["class"]))
    raise UsageError(f"job {row.id} is not applied to any file", "kernel-assistant undo FILE")


def _is_applied(place: Place) -> bool:
    """False where somebody took the lines out by hand, or the file away."""
    if place.path.is_dir():
        return True
    try:
        return place.class_name in decorated_classes(source_text(place.path))
    except UsageError:
        return False
    except (SyntaxError, ValueError):
        return True  # in the middle of an edit; undoing works there too


def undo_at(store: Store, place: Place, *, dry_run: bool = False) -> Undone:
    """Take what is applied at `place` back: out of a file, or out of the folder that replaces a library's class."""
    take_back = undo_outside if place.path.is_dir() else undo
    undone = take_back(place.path, place.class_name or None, dry_run=dry_run)
    if not dry_run:
        _note_undone(store, place.path, undone.classes)
    return undone


def _note_undone(store: Store, path: Path, classes: tuple[str, ...]) -> None:
    for edit in store.edits(path=str(path)):
        if json.loads(edit.document)["class"] in classes:
            store.mark_undone(edit.id)


def place_of(task: KernelTask, options: JobOptions) -> Place:
    """The file and class that a job is about: those of the task, but for the Python call's tasks."""
    if not options.source_path:
        return Place(Path(task.path), task.class_name)
    path, _, class_name = options.source_path.rpartition(":")
    return Place(Path(path), class_name)


def _doubts(row: JobRow, force: bool) -> list[str]:
    doubt = doubt_of(row.result) if row.result is not None else "it has no result"
    if doubt and not force:
        raise UsageError(f"job {row.id}: {doubt}", "add --force to apply its best candidate all the same")
    return [doubt] if doubt else []


def _is_of(row: JobRow, place: Place) -> bool:
    mine = place_of(row.task, row.options)
    return mine.path == place.path and place.class_name in ("", mine.class_name)


def _place(what: str) -> Place:
    from kernel_assistant.source.build import split_spec

    path, class_name = split_spec(what)
    return Place(path, class_name)
