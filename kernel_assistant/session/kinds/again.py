"""Prepares another check of existing kernels: those applied in a file, or the candidate of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from kernel_assistant.apply import AppliedClass, find_applied
from kernel_assistant.apply.package import package_name
from kernel_assistant.config import Settings
from kernel_assistant.errors import UsageError
from kernel_assistant.records import KernelTask
from kernel_assistant.session.check import CheckOptions, PreparedCheck, prepare_applied
from kernel_assistant.session.edits import applied_place
from kernel_assistant.session.prepare import prepare_check
from kernel_assistant.session.reporting.check_report import CHECK_FILE, ClassCheck, read_check
from kernel_assistant.store import JobKind, JobOptions, JobRow


def prepare_again(
    path: Path,
    class_name: str,
    settings: Settings,
    job: Callable[[], JobRow],
    *,
    applied: bool = True,
    projects: Iterable[Path] = (),
) -> ClassCheck | tuple[KernelTask, JobOptions]:
    """Returns the job that checks the kernels of a class: with `applied`, the kernels in its file if there are any;
    otherwise those of `job`. If it is clear without a job that the kernels are not used, returns that result instead.
    The kernels of an installed library's class are read from the packages in `projects`.

    Raises as `prepare_applied` and `prepare_check` do.
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
    """Returns the result of a job that checked applied kernels, None for another job. Raises StoreError."""
    return read_check(Path(artifacts[CHECK_FILE])) if CHECK_FILE in artifacts else None


def _applied(path: Path, class_name: str) -> AppliedClass | None:
    if path.suffix == ".py" and not (path.parent / package_name(path.stem)).is_dir():
        return None
    return next((one for one in find_applied([path]) if one.class_name == class_name), None)
