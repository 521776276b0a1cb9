"""Tools for existing kernels: `check` verifies applied kernels again, `export` writes a job's kernels to a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anyio import to_thread

from kernel_assistant.apply import AppliedClass, find_applied
from kernel_assistant.config import Settings
from kernel_assistant.errors import Cancelled, InternalError, KernelAssistantError, UsageError
from kernel_assistant.mcp import parameters as given
from kernel_assistant.mcp.jobs import Report, finish, submit
from kernel_assistant.mcp.tools import Answer, settings_for
from kernel_assistant.records import to_builtins
from kernel_assistant.session.check import CheckOptions, prepare_applied
from kernel_assistant.session.edits import export_job, find_job
from kernel_assistant.session.kinds.check_job import unchecked
from kernel_assistant.session.reporting.check_report import (
    CHECK_FILE,
    CheckReport,
    ClassCheck,
    cannot_run,
    gated,
    read_check,
)
from kernel_assistant.store import Store


async def check(wanted: given.CheckArguments, report: Report) -> Answer:
    """Verifies every applied class at or below a path again, and times it unless `timing` is off."""
    path = Path(wanted.path)
    settings = settings_for(path, {"target": wanted.target})
    applied = [one for one in await to_thread.run_sync(find_applied, [path]) if _is_for(one, settings.target)]
    if not applied:
        raise UsageError(f"no applied kernels at or below {path}", "apply some, or name another path")
    options = CheckOptions(timing=wanted.timing, kernels=False, build_missing=False)
    classes = [gated(await _one(one, settings, options, report), wanted.fail_under) for one in applied]
    result = CheckReport(classes=tuple(classes), fail_under=wanted.fail_under)
    document: dict[str, Any] = to_builtins(result)
    return {**document, "passes": result.exit_code == 0}


async def export(wanted: given.ExportArguments, report: Report) -> Answer:
    """Writes a job's kernels to a new folder, in a form that does not need this tool."""
    return await to_thread.run_sync(_export, wanted)


def _is_for(applied: AppliedClass, target: str) -> bool:
    return target in ("auto", applied.candidate.plan.target)


async def _one(applied: AppliedClass, settings: Settings, options: CheckOptions, report: Report) -> ClassCheck:
    """Check one class. An error becomes the status of the class, so that the other classes are still checked."""
    try:
        prepared = await to_thread.run_sync(prepare_applied, applied, settings, options)
        if isinstance(prepared, ClassCheck):
            return prepared
        job = await submit(settings, prepared.task, prepared.options)
        result = await finish(settings, job, report, cancel_with_call=True)
        if CHECK_FILE not in result.artifacts:
            raise InternalError("the check is not where the job wrote it", f"kernel-assistant show {job}")
        return read_check(Path(result.artifacts[CHECK_FILE]))
    except Cancelled:
        raise
    except KernelAssistantError as error:
        return cannot_run(unchecked(applied), error)


def _export(wanted: given.ExportArguments) -> Answer:
    row = find_job(Store(settings_for(None, {}).state_dir), str(wanted.what))
    exported = export_job(row, wanted.form, Path(wanted.folder).absolute())
    files = [str(path) for path in exported.files]
    return {"job": row.id, "form": wanted.form, "files": files, "warnings": list(exported.warnings)}
