"""Prepares a further job for existing kernels: a check of the kernels in a file or of a job's candidate, or a
confirmation (full measurement) of a candidate whose job was stopped early or ended with an unclear verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from kernel_assistant.apply import AppliedClass, find_applied
from kernel_assistant.apply.package import package_name
from kernel_assistant.config import Settings
from kernel_assistant.errors import UsageError
from kernel_assistant.records import KernelTask
from kernel_assistant.session.artifacts import read_workspace
from kernel_assistant.session.check import CheckOptions, PreparedCheck, prepare_applied
from kernel_assistant.session.edits import applied_place, is_of, place_named
from kernel_assistant.session.kinds.outcome import is_unconfirmed
from kernel_assistant.session.prepare import prepare_check
from kernel_assistant.session.reporting.check_report import CHECK_FILE, ClassCheck, read_check
from kernel_assistant.session.reporting.report import read_evaluation
from kernel_assistant.store import JobKind, JobOptions, JobRow, Store


def prepare_again(
    path: Path,
    class_name: str,
    settings: Settings,
    job: Callable[[], JobRow],
    *,
    applied: bool = True,
    projects: Iterable[Path] = (),
) -> ClassCheck | tuple[KernelTask, JobOptions]:
    """Returns task and options of the job that checks the kernels of a class: with `applied`, the kernels in its file,
    if there are any; otherwise the candidate of the job that `job()` returns. If the class was edited after its kernels
    were applied, no job is needed: returns the result of the check instead.

    The kernels of an installed library's class are read from the packages in the folders `projects`. Raises as
    `prepare_applied` and `prepare_check` do.
    """
    applied_class = _applied(applied_place(path, class_name, projects).path, class_name) if applied else None
    if applied_class is not None:
        prepared = prepare_applied(applied_class, settings, CheckOptions())
        return (prepared.task, prepared.options) if isinstance(prepared, PreparedCheck) else prepared
    row = job()
    if row.result is None or "plan.json" not in row.result.artifacts:
        raise UsageError(f"job {row.id} has no candidate to check", "optimize the class again")
    return prepare_check(Path(row.result.artifacts["plan.json"]).parent, None, settings, JobKind.verify)


def verdict_in(artifacts: dict[str, str]) -> ClassCheck | None:
    """Reads the result of a job that checked applied kernels. Returns None if `artifacts` (name → path) belong to
    another kind of job. Raises StoreError if the file cannot be read."""
    return read_check(Path(artifacts[CHECK_FILE])) if CHECK_FILE in artifacts else None


def _applied(path: Path, class_name: str) -> AppliedClass | None:
    if path.suffix == ".py" and not (path.parent / package_name(path.stem)).is_dir():
        return None
    return next((one for one in find_applied([path]) if one.class_name == class_name), None)


def prepare_confirm(store: Store, row: JobRow) -> tuple[KernelTask, JobOptions]:
    """Returns task and options of a job that confirms the best candidate of the job `row`: it measures the candidate in
    full, with the same text and interpreter.

    The new job is an `optimize` job without a search, so its result can be shown, applied and discarded like that of
    any other job. Raises UsageError if there is no candidate.
    """
    if row.result is None or "plan.json" not in row.result.artifacts or row.options.freeform is not None:
        raise UsageError(f"job {row.id} has no candidate to measure", f"kernel-assistant show {row.id}")
    evaluation = read_evaluation(row.result)
    # The store also knows the candidate's origin. A job from a remote machine has its candidate only in its folder.
    candidate = store.candidate(evaluation.candidate) if evaluation is not None else None
    candidate = candidate or read_workspace(Path(row.result.artifacts["plan.json"]).parent)
    return row.task, msgspec.structs.replace(row.options, kind=JobKind.optimize, candidate=candidate, free_wins=False)


def find_unconfirmed(store: Store, what: str) -> JobRow:
    """Returns the job that `what` names: a number, `last`, or `FILE[:CLASS]`, which means the newest job for that file
    or class whose candidate may still show a gain.

    Raises UsageError if there is none.
    """
    if what == "last" or what.isdigit():
        return store.job(what)
    selection = place_named(what)
    for row in store.jobs(limit=100_000):
        if row.result is not None and is_of(row, selection) and is_unconfirmed(row.result):
            return row
    raise UsageError(f"no job of {what} kept a candidate whose gain is not known", f"kernel-assistant optimize {what}")
