"""The last measurement of a job: times the user's file with kernels against the original file. The times include the
guard (the check before each call of the kernels) and the call of the custom operator."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from kernel_assistant.apply import AppliedOptions, applied_variants
from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import StoreError, boundary
from kernel_assistant.records import Evaluation, KernelTask, decode
from kernel_assistant.records.codec import from_builtins, to_builtins
from kernel_assistant.session.kinds.ahead import Ahead
from kernel_assistant.session.kinds.applied_timing import AppliedRow, AppliedTiming, conclude

TIME_SECONDS = 600.0


def time_applied(
    environment: Environment, task: KernelTask, result_dir: Path, folder: Path, ahead: Ahead
) -> AppliedTiming:
    """Applies the kernels in `result_dir` to a copy of the user's file below `folder`, and times the copy against the
    original. Uses the process of `ahead` if it has imported the file. Deletes `folder` afterwards. Raises UsageError if
    the kernels cannot be applied, StoreError if writing fails."""
    with boundary(StoreError, f"cannot write {folder}"):
        shutil.rmtree(folder, ignore_errors=True)
        source = folder / "source" / Path(task.path).name
        source.parent.mkdir(parents=True, mode=0o700)
        source.write_text(task.content, encoding="utf-8")
        # Unaligned tensors are copied here, to measure whether that pays.
        variants = applied_variants(result_dir, source, folder, AppliedOptions(unaligned="copy"))
        params: dict[str, Any] = {
            "task": to_builtins(task),
            "edited": str(variants.applied),
            "applied": variants.applied.read_text(encoding="utf-8"),
            "package": str(variants.package),
            "device": environment.device.index,
            "cache_bytes": environment.device.cache_bytes,
            "sizes": _evaluation(result_dir).sizes,
        }
    try:
        answer = _in_a_plain_worker(environment, params, ahead)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = tuple(from_builtins(row, AppliedRow) for row in answer["rows"])
    return conclude(rows, answer["kernel_calls"], answer["fallbacks"])


def _evaluation(result_dir: Path) -> Evaluation:
    return decode((result_dir / "evaluation.json").read_bytes(), Evaluation)


def _in_a_plain_worker(environment: Environment, params: dict[str, Any], ahead: Ahead) -> dict[str, Any]:
    """Calls the method `time_applied` of a worker with PyTorch's default allocator, which the user's program has too.
    Returns the worker's answer."""
    worker = ahead.take(environment.clock.until_limit()) or WorkerClient(environment.worker.python, measuring={})
    try:
        if not worker.hello:
            environment.clock.check()
            worker.start(environment.cancel, environment.clock.until_limit())
        with environment.alone():
            environment.clock.check()
            seconds = min(TIME_SECONDS, environment.clock.until_limit())
            params["limit"] = seconds
            params["seconds"] = max(0.0, min(TIME_SECONDS, environment.clock.before_free()))
            return worker.call("time_applied", params, timeout=seconds, cancel=environment.cancel)
    finally:
        worker.close()
