"""Kernels that exist, checked again: applied ones in their file, else the candidate of a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernel_assistant.apply import AppliedClass, find_applied
from kernel_assistant.apply.package import package_name
from kernel_assistant.config import Settings
from kernel_assistant.errors import UsageError
from kernel_assistant.records import KernelTask
from kernel_assistant.session.check import Prepared, Wish, prepare_applied
from kernel_assistant.session.check_report import CHECK_FILE, ClassCheck, read_check
from kernel_assistant.session.prepare import prepare_check
from kernel_assistant.store import JobKind, JobOptions, JobRow


def prepare_again(
    path: Path, class_name: str, settings: Settings, job: Callable[[], JobRow], *, applied: bool = True
) -> ClassCheck | tuple[KernelTask, JobOptions]:
    """The job that checks the kernels of a class: what is applied, where something is and `applied`, else `job`'s.

    A verdict where a look tells that the kernels are not used. Raises as `prepare_applied` and `prepare_check` do.
    """
    found = _applied(path, class_name) if applied else None
    if found is not None:
        prepared = prepare_applied(found, settings, Wish())
        return (prepared.task, prepared.options) if isinstance(prepared, Prepared) else prepared
    row = job()
    if row.result is None or "plan.json" not in row.result.artifacts:
        raise UsageError(f"job {row.id} has no candidate to check", "optimize the class again")
    return prepare_check(Path(row.result.artifacts["plan.json"]).parent, None, settings, JobKind.verify)


def verdict_in(artifacts: dict[str, str]) -> ClassCheck | None:
    """What a check of applied kernels found, which its events do not tell; None of another job. Raises StoreError."""
    return read_check(Path(artifacts[CHECK_FILE])) if CHECK_FILE in artifacts else None


def _applied(path: Path, class_name: str) -> AppliedClass | None:
    if not (path.parent / package_name(path.stem)).is_dir():
        return None
    return next((one for one in find_applied([path]) if one.class_name == class_name), None)
