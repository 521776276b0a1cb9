"""Check kernels again: applied ones in their file, or the candidate of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_assistant.apply import AppliedClass, find_applied
from kernel_assistant.apply.package import package_name
from kernel_assistant.config import Settings
from kernel_assistant.errors import UsageError
from kernel_assistant.records import KernelTask
from kernel_assistant.session.check_report import ClassCheck
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobKind, JobOptions
from kernel_assistant_lsp.commands.arguments import class_of, job_of
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.start import start


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """`{"job"}`; `{"job": null, "status", "message", "nextStep"}` where a look tells that the kernels are not used."""
    snapshot, name = class_of(context, argument)
    settings = context.settings(snapshot.path)
    prepared = await in_thread(lambda: _prepared(context, argument, snapshot.path, name, settings))
    if isinstance(prepared, ClassCheck):
        verdict = {"status": prepared.status.value, "message": prepared.message, "nextStep": prepared.next_step}
        return {"job": None, **verdict}
    return await start(context, *prepared, settings)


def _prepared(
    context: Context, argument: dict[str, Any], path: Path, name: str, settings: Settings
) -> ClassCheck | tuple[KernelTask, JobOptions]:
    from kernel_assistant.session.check import Wish, prepare_applied
    from kernel_assistant.session.prepare import prepare_check

    applied = None if "job" in argument else _applied(path, name)
    if applied is not None:
        found = prepare_applied(applied, settings, Wish())
        return found if isinstance(found, ClassCheck) else (found.task, found.options)
    row = job_of(context, argument)
    if row.result is None or "plan.json" not in row.result.artifacts:
        raise UsageError(f"job {row.id} has no candidate to check", "optimize the class again")
    return prepare_check(Path(row.result.artifacts["plan.json"]).parent, None, settings, JobKind.verify)


def _applied(path: Path, name: str) -> AppliedClass | None:
    if not (path.parent / package_name(path.stem)).is_dir():
        return None
    return next((one for one in find_applied([path]) if one.class_name == name), None)
