"""The last measurement: the user's file with its kernels against the file as it was, guard and operator included."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec

from kernel_assistant.apply import applied_variants
from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.worker_client import Worker
from kernel_assistant.errors import StoreError, boundary
from kernel_assistant.records import KernelTask
from kernel_assistant.records.codec import from_builtins, to_builtins
from kernel_assistant.session.applied_timing import AppliedRow, AppliedTiming, conclude

TIME_SECONDS = 600.0


def time_applied(environment: Environment, task: KernelTask, result_dir: Path, folder: Path) -> AppliedTiming:
    """Apply the result to copies below `folder` and time them. Raises UsageError where it cannot be applied."""
    with boundary(StoreError, f"cannot write {folder}"):
        shutil.rmtree(folder, ignore_errors=True)
        source = folder / "source" / Path(task.path).name
        source.parent.mkdir(parents=True, mode=0o700)
        source.write_text(task.content, encoding="utf-8")
        variants = applied_variants(result_dir, source, folder)
        # Both texts are loaded under the path whose package holds the kernels; only one of them names it.
        moved = msgspec.structs.replace(task, path=str(variants.applied))
        params: dict[str, Any] = {
            "task": to_builtins(moved),
            "applied": variants.applied.read_text(encoding="utf-8"),
            "package": str(variants.package),
            "device": environment.device.index,
            "cache_bytes": environment.device.cache_bytes,
        }
    try:
        answer = _in_a_plain_worker(environment, params)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return conclude(tuple(from_builtins(row, AppliedRow) for row in answer["rows"]))


def _in_a_plain_worker(environment: Environment, params: dict[str, Any]) -> dict[str, Any]:
    """A process of its own with the user's ordinary allocator: what applying gains where the module really runs."""
    worker = Worker(environment.worker.python, measuring={})
    try:
        worker.start(environment.cancel)
        with environment.alone():
            return worker.call("time_applied", params, timeout=TIME_SECONDS, cancel=environment.cancel)
    finally:
        worker.close()
