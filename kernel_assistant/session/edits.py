"""Applies a job's kernels to the user's file and removes them again; records each edit in the store. Every front end
calls this module in its own process, which may write what the user may write."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.apply import (
    AppliedOptions,
    ApplyResult,
    ExportResult,
    UndoResult,
    apply_outside,
    apply_result,
    export,
    is_installed,
    packages_of,
    replaced_in,
    undo,
    undo_outside,
)
from kernel_assistant.apply.applied import is_same_class, source_text
from kernel_assistant.apply.outside import read_outside
from kernel_assistant.apply.takeback import decorated_classes
from kernel_assistant.errors import UsageError
from kernel_assistant.records import KernelTask
from kernel_assistant.session.kinds.applied_timing import APPLIED_FILE, read_applied
from kernel_assistant.session.kinds.outcome import doubt_of, is_unconfirmed
from kernel_assistant.session.reporting.verdicts import of_program
from kernel_assistant.session.reporting.words import way_to_take
from kernel_assistant.session.served_calls import left_to_original
from kernel_assistant.source.build import import_location
from kernel_assistant.store import JobOptions, JobRow, Store


@dataclass(frozen=True)
class FileSelection:
    """A file, or the folder of a package that replaces a library's class, and the name of a class in it; an empty name
    selects all classes."""

    path: Path
    class_name: str


def find_job(store: Store, what: str) -> JobRow:
    """Returns the job that `what` names: a number, `last`, or `FILE[:CLASS]`, which means the newest job with a gain
    for that file or class. Raises UsageError if there is none."""
    if what == "last" or what.isdigit():
        return store.job(what)
    selection = place_named(what)
    rows = [row for row in store.jobs(limit=100_000) if is_of(row, selection)]
    for row in rows:
        if row.result is not None and row.result.applicable:
            return row
    kept = next((row for row in rows if row.result is not None and "plan.json" in row.result.artifacts), None)
    if kept is not None and kept.result is not None:
        raise UsageError(f"no job has improved {what}; job {kept.id}: {doubt_of(kept.result)}", _next_step(kept))
    cause = "no job has improved" if rows else "there is no job for"
    raise UsageError(f"{cause} {what}", f"kernel-assistant optimize {what}")


def apply_job(
    store: Store,
    row: JobRow,
    *,
    dry_run: bool,
    force: bool = False,
    into: Path | None = None,
    project: Path | None = None,
    text: str | None = None,
) -> tuple[ApplyResult, list[str]]:
    """Edits the user's file. Returns the result of the edit, and warnings, one of which names the calls of a scanned
    program that have no kernels yet. Raises UsageError if the job has no gain (unless `force`) or cannot be applied.

    The file of an installed library is never edited: a package in the user's project replaces the class when it is
    imported (apply/outside.py). With `into`, this is done for any class, and the file `into` gets the import line. The
    package is written to the folder from which `into` imports, else to `project`, else to the current folder.

    `text` is the file's text in an editor, which then inserts the lines itself (see `apply_result`).
    """
    applied, warnings = apply_one(store, row, dry_run=dry_run, force=force, into=into, project=project, text=text)
    left = left_to_original(store, (row,))
    return applied, [*warnings, *([left] if left else [])]


def apply_one(
    store: Store,
    row: JobRow,
    *,
    dry_run: bool,
    force: bool = False,
    into: Path | None = None,
    project: Path | None = None,
    text: str | None = None,
) -> tuple[ApplyResult, list[str]]:
    """Does the same as `apply_job`, but does not warn of the calls of a scanned program that have no kernels yet."""
    if row.result is None or "plan.json" not in row.result.artifacts:
        raise UsageError(f"job {row.id} has no candidate to apply", f"kernel-assistant show {row.id}")
    if session := row.task.session:
        raise UsageError(
            f"{row.task.class_name} of job {row.id} is of {session}: there is no file to apply to",
            f"kernel_assistant.accelerated(module, result) runs it there; elsewhere: {way_to_take(session, row.id)}",
        )
    warnings = _doubts(row, force)
    folder = Path(row.result.artifacts["plan.json"]).parent
    timing = read_applied(folder / APPLIED_FILE)
    if timing is None:
        warnings.append("the edited file was not timed; its guard may cost more than the kernels gain")
    options = timing.options if timing else AppliedOptions()
    source = place_of(row.task, row.options).path
    outside = into is not None or row.task.installed or is_installed(source)
    if outside:
        beside = Path(import_location(into.absolute())[1]) if into is not None else project or Path.cwd()
        applied = apply_outside(folder, source, beside, into=into, dry_run=dry_run, options=options)
    else:
        applied = apply_result(folder, source, dry_run=dry_run, options=options, text=text)
    if not dry_run:
        document = {"class": applied.class_name, "package": str(applied.package), "diff": applied.diff}
        store.add_edit(str(applied.package if outside else applied.source), row.id, json.dumps(document))
    return applied, warnings


def is_appliable(row: JobRow, text: str) -> bool:
    """Whether `apply_job` can apply this job to `text`: the job has a gain, and in `text` its class is unchanged and
    has no kernels yet."""
    result = row.result
    if result is None or "plan.json" not in result.artifacts or doubt_of(result):
        return False
    name = place_of(row.task, row.options).class_name
    try:
        served = name in decorated_classes(text)
    except (SyntaxError, ValueError):
        return False
    return not served and is_same_class(text, row.task.content, row.task.class_name)


def export_job(row: JobRow, kind: str, folder: Path) -> ExportResult:
    """Writes the job's best candidate to `folder` as files that run without this tool; `kind` is one of
    `apply.exporting.export.KINDS`. Raises UsageError if the job has no candidate or it cannot be exported."""
    if row.result is None or "plan.json" not in row.result.artifacts:
        raise UsageError(f"job {row.id} has no candidate to export", f"kernel-assistant show {row.id}")
    result = Path(row.result.artifacts["plan.json"]).parent
    timing = read_applied(result / APPLIED_FILE)
    text = source_text(place_of(row.task, row.options).path) if row.options.source_path else None
    return export(result, kind, folder, options=timing.options if timing else None, text=text)


def find_place(store: Store, what: str) -> FileSelection:
    """Returns the file or package, and the class, that `undo WHAT` has to undo. `what` is a file, an applied job (its
    number or `last`), or "" for the newest edit that is still applied. Raises UsageError if nothing fits."""
    if not what:
        selections = (FileSelection(Path(edit.path), str(json.loads(edit.document)["class"])) for edit in store.edits())
        if (last := next(filter(_is_applied, selections), None)) is not None:
            return last
        raise UsageError("nothing is applied", "kernel-assistant apply last")
    if what != "last" and not what.isdigit():
        return _served_from(place_named(what))
    row = store.job(what)
    for edit in store.edits(job=row.id):
        return FileSelection(Path(edit.path), str(json.loads(edit.document)["class"]))
    raise UsageError(f"job {row.id} is not applied to any file", "kernel-assistant undo FILE")


def applied_place(path: Path, class_name: str, projects: Iterable[Path]) -> FileSelection:
    """Returns the selection that `undo_at` needs for a class: its file or, for a class of an installed library, the
    package in one of the folders `projects` that replaces the class."""
    package = replaced_in(projects, path).get(class_name) if is_installed(path) else None
    return FileSelection(package or path, class_name)


def importing_files(selection: FileSelection) -> tuple[Path, ...]:
    """Returns the user's files that import the selected package. Raises UsageError for a folder that this tool did not
    make."""
    known = read_outside(selection.path)
    return tuple((selection.path.parent / path).resolve() for path in known.into) if known is not None else ()


def _served_from(selection: FileSelection) -> FileSelection:
    """Returns the selection in which kernels are applied: `selection` itself or, if its file has none but imports a
    package that replaces a library's class, this package. If there is neither, returns `selection`. Raises UsageError
    if the file imports several such packages."""
    if selection.path.is_dir() or not selection.path.is_file() or _is_applied(selection):
        return selection
    packages = packages_of(selection.path, selection.class_name)
    if len(packages) > 1:
        names = ", ".join(str(package) for package in packages)
        raise UsageError(f"{selection.path.name} imports {len(packages)} packages with kernels", f"name one: {names}")
    return FileSelection(packages[0], selection.class_name) if packages else selection


def _is_applied(selection: FileSelection) -> bool:
    """Whether kernels are applied in this selection. False if the user deleted the generated lines or the file; True if
    the file has a syntax error, because then the user may be in the middle of an edit."""
    if selection.path.is_dir():
        return True
    try:
        decorated = decorated_classes(source_text(selection.path))
        return selection.class_name in decorated if selection.class_name else bool(decorated)
    except UsageError:
        return False
    except (SyntaxError, ValueError):
        return True  # the file has a syntax error during an edit; undoing works nevertheless


def undo_at(store: Store, selection: FileSelection, *, dry_run: bool = False) -> UndoResult:
    """Removes the applied kernels of `selection`, which is a file, or a package that replaces a library's class.
    Changes nothing if `dry_run` is true."""
    take_back = undo_outside if selection.path.is_dir() else undo
    undone = take_back(selection.path, selection.class_name or None, dry_run=dry_run)
    if not dry_run:
        _note_undone(store, selection.path, undone.classes)
    return undone


def _note_undone(store: Store, path: Path, classes: tuple[str, ...]) -> None:
    for edit in store.edits(path=str(path)):
        if json.loads(edit.document)["class"] in classes:
            store.mark_undone(edit.id)


def place_of(task: KernelTask, options: JobOptions) -> FileSelection:
    """Returns the file and class that a job belongs to: those of its task or, if the job was submitted from Python
    (`kernel_assistant.optimize`), the file and class that the user wrote."""
    if not options.source_path:
        return FileSelection(Path(task.path), task.class_name)
    path, _, class_name = options.source_path.rpartition(":")
    return FileSelection(Path(path), class_name)


def _doubts(row: JobRow, force: bool) -> list[str]:
    doubt = doubt_of(row.result) if row.result is not None else "it has no result"
    if doubt and not force:
        raise UsageError(f"job {row.id}: {doubt}", _next_step(row))
    other = of_program(row.result) if row.result is not None and row.result.applicable else ""
    return [words for words in (doubt, other) if words]


def _next_step(row: JobRow) -> str:
    force = f"kernel-assistant apply {row.id} --force takes its best candidate all the same"
    if row.result is None or not is_unconfirmed(row.result):
        return force
    measures = "measures it in full" if row.result.best is None else "measures it again"
    return f"kernel-assistant confirm {row.id} {measures}; or {force}"


def is_of(row: JobRow, selection: FileSelection) -> bool:
    """Whether a job is about a class of this selection."""
    mine = place_of(row.task, row.options)
    return mine.path == selection.path and selection.class_name in ("", mine.class_name)


def place_named(what: str) -> FileSelection:
    """Parses `FILE[:CLASS]`; without CLASS, all classes of the file are selected."""
    from kernel_assistant.source.build import split_spec

    path, class_name = split_spec(what)
    return FileSelection(path, class_name)
