"""Applies the kernels of a scanned class, job after job. A scan records a class in one or more configurations (a module
with its kind of inputs); each has its own job, and keeps its own kernels in the package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.apply import ApplyResult
from kernel_assistant.apply.applied import is_same_class
from kernel_assistant.config import Settings
from kernel_assistant.errors import UsageError
from kernel_assistant.session.edits import apply_one, find_job
from kernel_assistant.session.kinds.outcome import doubt_of
from kernel_assistant.session.scanning.recorded import class_of_scan
from kernel_assistant.session.served_calls import configuration_of, left_to_original
from kernel_assistant.store import JobRow, Store


@dataclass(frozen=True)
class ChosenJobs:
    """The jobs whose kernels are applied, in this order. `notes` are messages for the user about jobs of the same class
    that are not applied."""

    rows: tuple[JobRow, ...]
    notes: tuple[str, ...] = ()


def jobs_to_apply(store: Store, what: str, settings: Settings, *, force: bool = False) -> ChosenJobs:
    """Returns the jobs whose kernels `apply` puts into the file. If `what` is a number, that is this job; for `last`,
    `FILE[:CLASS]` and `SCAN:CLASS` it is one job for each configuration of the class that a scan recorded.

    The job of a configuration is its newest job with a gain; with `force`, if no job has a gain, its newest job with a
    candidate. Raises UsageError if there is no job.
    """
    scan, colon, name = what.partition(":")
    if colon and scan.isdigit() and not Path(scan).exists():
        return ChosenJobs(_of_class(store, scan, name, settings, force=force))
    row = find_job(store, what)
    rows = _with_siblings(store, row, force=force)
    if what.isdigit():
        return ChosenJobs((row,))
    named = next((one for one in rows if configuration_of(one.task) == configuration_of(row.task)), None)
    notes = () if named else (f"job {row.id} is not applied: {doubt_of(row.result)}",) if row.result and rows else ()
    return ChosenJobs(rows or (row,), notes)


@dataclass(frozen=True)
class AppliedJob:
    """A job and the result of applying it."""

    row: JobRow
    result: ApplyResult


def apply_jobs(
    store: Store, chosen: ChosenJobs, *, dry_run: bool, force: bool = False, into: Path | None = None
) -> tuple[list[AppliedJob], list[str]]:
    """Applies the kernels of the `chosen` jobs one after another. Returns the applied jobs, at least one, and warnings
    for the user. The options are those of `edits.apply_job`.

    A job that cannot be applied gives a warning and does not stop the other jobs. Raises UsageError if no job can be
    applied.
    """
    applied: list[AppliedJob] = []
    warnings, refused = list(chosen.notes), None
    for row in chosen.rows:
        head = f"job {row.id}: " if len(chosen.rows) > 1 else ""
        try:
            result, said = apply_one(store, row, dry_run=dry_run, force=force, into=into)
        except UsageError as error:
            refused = error
            warnings.append(f"{head}not applied: {error.cause}")
            continue
        applied.append(AppliedJob(row, result))
        warnings += [f"{head}{one}" for one in said]
    if not applied:
        raise refused or UsageError("there is nothing to apply", "kernel-assistant optimize FILE:CLASS")
    left = left_to_original(store, [one.row for one in applied])
    return applied, [*warnings, *([left] if left else [])]


def _of_class(store: Store, scan: str, name: str, settings: Settings, *, force: bool) -> tuple[JobRow, ...]:
    scanned_class = class_of_scan(f"{scan}:{name.partition('#')[0]}", settings)
    folders = {one.folder for one in scanned_class.row.configurations}
    newest = next((row for row in store.jobs_of(scanned_class.row.path) if row.task.recording in folders), None)
    rows = () if newest is None else _with_siblings(store, newest, force=force)
    if not rows:
        kept = "no job has improved" if newest is not None else "there is no job for"
        raise UsageError(
            f"{kept} {name} of scan {scan}",
            f"kernel-assistant optimize --scan {scan}:{name}"
            + (f"; or kernel-assistant apply {scan}:{name} --force" if newest is not None else ""),
        )
    return rows


def _with_siblings(store: Store, row: JobRow, *, force: bool) -> tuple[JobRow, ...]:
    """Returns one job to apply for each configuration of the same class, scan and target as the job `row`, sorted by
    job number; () if the task of `row` does not use a scan's recording."""
    if not row.task.recording:
        return ()
    jobs: dict[tuple[str, ...], list[JobRow]] = {}
    for one in store.jobs_of(row.task.path):
        if _is_sibling(one, row):
            jobs.setdefault(configuration_of(one.task), []).append(one)
    jobs[configuration_of(row.task)] = [row, *jobs.get(configuration_of(row.task), ())]
    chosen = [_best_of(rows, force=force) for rows in jobs.values()]
    return tuple(sorted((one for one in chosen if one is not None), key=lambda one: int(one.id)))


def _best_of(rows: list[JobRow], *, force: bool) -> JobRow | None:
    with_gain = (row for row in rows if _has_kernels(row) and row.result is not None and not doubt_of(row.result))
    return next(with_gain, next(filter(_has_kernels, rows), None) if force else None)


def _has_kernels(row: JobRow) -> bool:
    return row.result is not None and "plan.json" in row.result.artifacts


def _is_sibling(one: JobRow, row: JobRow) -> bool:
    return (
        _has_kernels(one)
        and bool(one.task.recording)
        and Path(one.task.recording).parent == Path(row.task.recording).parent
        and (one.task.class_name, one.task.target) == (row.task.class_name, row.task.target)
        and is_same_class(one.task.content, row.task.content, row.task.class_name)
    )
