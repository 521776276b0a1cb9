"""The function behind each tool. It gets the tool's parameters and returns plain data; blocking work runs in a
thread."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from anyio import to_thread

from kernel_assistant.config import Settings, resolve
from kernel_assistant.errors import InternalError, UsageError
from kernel_assistant.mcp import parameters as given
from kernel_assistant.mcp.class_jobs import finish_class, served_answer, submit_class
from kernel_assistant.mcp.jobs import Report, brief, finish, submit
from kernel_assistant.records import Evaluation, KernelTask, OptimizeResult, decode, to_builtins
from kernel_assistant.session.class_edits import apply_jobs, jobs_to_apply
from kernel_assistant.session.client import Client
from kernel_assistant.session.edits import find_place, undo_at
from kernel_assistant.session.kinds.again import prepare_confirm
from kernel_assistant.session.kinds.lines_job import read_lines
from kernel_assistant.session.prepare import prepare, prepare_check
from kernel_assistant.session.reporting.gains import machine_here
from kernel_assistant.session.reporting.words import NOT_CONFIRMED
from kernel_assistant.session.scanning.recorded import ClassOfScan, class_of_task
from kernel_assistant.session.scanning.scan_process import ScanProcess
from kernel_assistant.source.build import read_text, split_spec
from kernel_assistant.source.draft import draft as drafted_for
from kernel_assistant.source.lint import find_hints
from kernel_assistant.store import JobKind, JobOptions, JobRow, Store

Answer = dict[str, Any]
_MOST_HINTS = 200


async def hints(wanted: given.HintsArguments, report: Report) -> Answer:
    """Returns the parts of nn.Module classes where code is slower than necessary, found without running the code."""
    return await to_thread.run_sync(_hints, Path(wanted.path))


async def scan(wanted: given.ScanArguments, report: Report) -> Answer:
    """Runs the user's program under the recorder, as `kernel-assistant scan` does. Cancelling the call ends the
    program."""
    await report(0.0, f"running {' '.join(wanted.command)}")
    process = await ScanProcess.run(wanted.command, Path(wanted.folder), ("--top", str(wanted.top)))
    return await process.answer()


async def draft(wanted: given.DraftArguments, report: Report) -> Answer:
    """Drafts inputs for a class that declares none; the agent reads and corrects them. Nothing is run."""
    drafted = await to_thread.run_sync(drafted_for, wanted.module)
    return {"class": drafted.class_name, "text": drafted.text, "origin": drafted.origin}


async def profile(wanted: given.ProfileArguments, report: Report) -> Answer:
    """Times each line of a module's forward."""
    settings = settings_for(split_spec(wanted.module)[0], {"target": wanted.target})
    task, options = await to_thread.run_sync(partial(prepare, wanted.module, settings, kind=JobKind.lines))
    return await _job(settings, task, options, report, wait=wanted.wait)


async def verify(wanted: given.VerifyArguments, report: Report) -> Answer:
    """Verifies one candidate of the agent against its reference, with the judge that `optimize` uses; times it with
    `timing`."""
    path = Path(wanted.candidate)
    settings = settings_for(path, {"target": wanted.target})
    kind = JobKind.profile if wanted.timing else JobKind.verify
    prepared = partial(prepare_check, path, wanted.reference or None, settings, kind)
    task, options = await to_thread.run_sync(prepared)
    return await _job(settings, task, options, report, wait=wanted.wait)


async def optimize(wanted: given.OptimizeArguments, report: Report) -> Answer:
    """Has kernels written for a module until they beat torch.compile or the budget is spent. Applies nothing."""
    flags: dict[str, object] = {
        "target": wanted.target,
        "budget": wanted.budget_seconds,
        "policy": wanted.policy,
        "numerics": wanted.numerics,
    }
    settings = settings_for(split_spec(wanted.module)[0], flags)
    prepared = partial(prepare, wanted.module, settings, inputs=wanted.inputs)
    task, options = await to_thread.run_sync(prepared)
    scanned_class = await to_thread.run_sync(class_of_task, task, settings.state_dir)
    if scanned_class is not None and len(scanned_class.row.configurations) > 1:
        return await _optimize_class(scanned_class, settings, report, wait=wanted.wait)
    options = msgspec.structs.replace(options, free_wins=settings.free_wins)
    return await _job(settings, task, options, report, wait=wanted.wait)


async def _optimize_class(scanned_class: ClassOfScan, settings: Settings, report: Report, *, wait: bool) -> Answer:
    """The result for the configuration that takes most time (the next one, if its job fails), with the facts about
    all configurations; without `wait`, the numbers of the jobs."""
    if not wait:
        jobs = await submit_class(scanned_class, settings)
        return {"job": jobs[0], "jobs": jobs}
    gain = await finish_class(scanned_class, settings, report)
    ended = next((part for part in gain.parts if part.result is not None), None)
    if ended is None or ended.result is None:
        raise next(part.failure for part in gain.parts if part.failure is not None)
    return {**_result_answer(ended.result, ended.job, sources=False), **served_answer(scanned_class, gain)}


async def result(wanted: given.ResultArguments, report: Report) -> Answer:
    """Returns the result of a job, or its state if it has no result yet."""
    settings = settings_for(None, {})
    row = await to_thread.run_sync(lambda: Store(settings.state_dir).job(str(wanted.job)))
    if row.state.active and wanted.wait:
        job_result = await finish(settings, row.id, report, cancel_with_call=False)
        return _result_answer(job_result, row.id, sources=wanted.sources)
    if row.result is None:
        return _row(row)
    return {**_row(row), **_result_answer(row.result, row.id, sources=wanted.sources)}


async def jobs(wanted: given.JobsArguments, report: Report) -> Answer:
    """Lists jobs: unfinished ones first, then the newest."""
    rows = await to_thread.run_sync(Client(settings_for(None, {})).jobs, wanted.limit)
    return {"jobs": [_row(row) for row in rows]}


async def cancel(wanted: given.CancelArguments, report: Report) -> Answer:
    """Stops a job and keeps its best candidate so far."""
    settings = settings_for(None, {})
    row = await to_thread.run_sync(lambda: Store(settings.state_dir).job(str(wanted.job)))
    state = await to_thread.run_sync(Client(settings).cancel, row.id)
    return {"job": row.id, "state": state.value}


async def confirm(wanted: given.ConfirmArguments, report: Report) -> Answer:
    """Evaluates a job's best candidate in the full tier."""
    settings = settings_for(None, {})
    store = Store(settings.state_dir)
    task, options = await to_thread.run_sync(lambda: prepare_confirm(store, store.job(str(wanted.job))))
    return await _job(settings, task, options, report, wait=wanted.wait)


async def apply(wanted: given.ApplyArguments, report: Report) -> Answer:
    """Writes a job's kernels into the user's file."""
    return await to_thread.run_sync(_apply, wanted)


async def undo(wanted: given.UndoArguments, report: Report) -> Answer:
    """Takes applied kernels out of the user's file."""
    return await to_thread.run_sync(_undo, wanted)


async def _job(settings: Settings, task: KernelTask, options: JobOptions, report: Report, *, wait: bool) -> Answer:
    """Submits a job. Returns its result if `wait`, else its number."""
    job = await submit(settings, task, options)
    if not wait:
        return {"job": job}
    return _result_answer(await finish(settings, job, report, cancel_with_call=True), job, sources=False)


def _hints(path: Path) -> Answer:
    settings = settings_for(path, {})
    machine = machine_here(settings)
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    rows = []
    for file in files:
        if not any(part.startswith(".") for part in file.relative_to(path).parts):
            try:
                rows += [
                    {"path": str(file), **_hint(hint)}
                    for hint in find_hints(read_text(file), machine, settings.ignore_hints)
                ]
            except UsageError:
                if file == path:
                    raise
    return {"hints": rows[:_MOST_HINTS], "left_out": max(0, len(rows) - _MOST_HINTS)}


def _hint(hint: Any) -> Answer:
    return {
        "code": hint.code,
        "class": hint.class_name,
        "line": hint.line,
        "end_line": hint.end_line,
        "message": hint.message,
    }


def _apply(wanted: given.ApplyArguments) -> Answer:
    settings = settings_for(None, {})
    store = Store(settings.state_dir)
    chosen = jobs_to_apply(store, str(wanted.what), settings, force=wanted.force)
    into = Path(wanted.into) if wanted.into else None
    done, warnings = apply_jobs(store, chosen, dry_run=wanted.dry_run, force=wanted.force, into=into)
    applied = done[-1].result
    return {
        "job": done[-1].row.id,
        "jobs": [one.row.id for one in done],
        "path": str(applied.source),
        "class": applied.class_name,
        "package": str(applied.package),
        "diff": done[0].result.diff,
        "import_line": applied.import_line,
        "warnings": warnings,
        "dry_run": wanted.dry_run,
    }


def _undo(wanted: given.UndoArguments) -> Answer:
    store = Store(settings_for(None, {}).state_dir)
    undone = undo_at(store, find_place(store, str(wanted.what)), dry_run=wanted.dry_run)
    return {
        "path": str(undone.source),
        "classes": list(undone.classes),
        "restored": undone.restored,
        "kept": list(undone.kept),
        "diff": undone.diff,
        "dry_run": wanted.dry_run,
    }


def _result_answer(job_result: OptimizeResult, job: str, *, sources: bool) -> Answer:
    """A job's result as plain data. Times of lines or an evaluation are added if the job has them, the kernels' sources
    with `sources`."""
    answer = brief(job_result, job)
    lines = read_lines(job_result)
    if lines is not None:
        answer["lines"] = {**to_builtins(lines), "source": None}
    evaluation = job_result.artifacts.get("evaluation.json")
    if evaluation is not None and Path(evaluation).is_file():
        answer["evaluation"] = to_builtins(decode(Path(evaluation).read_bytes(), Evaluation))
        if job_result.best is None and answer["evaluation"]["timing"] is not None:
            answer["evaluation_note"] = NOT_CONFIRMED
    if sources and "plan.json" in job_result.artifacts:
        folder = Path(job_result.artifacts["plan.json"]).parent / "sources"
        answer["sources"] = {str(one.relative_to(folder)): one.read_text() for one in sorted(folder.glob("*.*"))}
    return answer


def _row(row: JobRow) -> Answer:
    return {
        "job": row.id,
        "state": row.state.value,
        "kind": row.options.kind.value,
        "task": f"{row.task.path}:{row.task.class_name}",
        "device": row.device,
        "outcome": row.result.outcome.value if row.result is not None else None,
        "error": row.error,
        "next_step": row.next_step,
    }


def settings_for(path: Path | None, flags: Mapping[str, object]) -> Settings:
    """The settings, resolved as on the command line: a project's files cannot change settings that only the user may
    set. Raises UsageError if `host` names a remote machine."""
    settings, _ = resolve(path or Path.cwd(), flags)
    if settings.host:
        raise UsageError("the MCP server works on this machine alone", "start it there, or unset `host`")
    return settings


def unexpected(name: str, error: Exception) -> InternalError:
    """The error to report if `error`, a bug, ended the tool `name`."""
    return InternalError(f"{name} broke: {type(error).__name__}: {error}", "report this with the server's stderr")
