"""A job that times each source line of a module's forward, and functions that read its result."""

from __future__ import annotations

import ast
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kernel_assistant.environment.ceilings import ceilings_of, with_ceilings
from kernel_assistant.environment.device_locks import alone
from kernel_assistant.environment.job_clock import JobClock
from kernel_assistant.environment.stage_messages import call_naming_stages, opening_seconds
from kernel_assistant.errors import StoreError, UsageError, boundary
from kernel_assistant.events import AnyEvent, Progress
from kernel_assistant.records import JobOutcome, KernelTask, OptimizeResult, StopReason
from kernel_assistant.records.codec import decode, encode, from_builtins, to_builtins
from kernel_assistant.records.line_profile import LineProfile
from kernel_assistant.session.hosting.jobs import JobServices
from kernel_assistant.store import JobKind, JobOptions, JobRow, JobState
from kernel_assistant.targets.base import DeviceFacts

LINES_FILE = "lines.json"
#: Seconds for repeating the module, independent of a search's budget.
SECONDS = 5.0


def profile_lines(
    task: KernelTask,
    options: JobOptions,
    device: DeviceFacts,
    *,
    emit: Callable[[AnyEvent], None],
    cancel: threading.Event,
    services: JobServices,
) -> OptimizeResult:
    """Times each line of the module's forward under the user's interpreter and stores the `LineProfile` as an artifact.
    Raises as `call_naming_stages` does."""
    started = time.monotonic()
    with services.workers.lend(options.python, device) as worker:
        if not worker.hello:
            worker.start(cancel)
        known = with_ceilings(device, worker, services.settings.cache_dir, cancel)
        emit(Progress(phase="lines", message=f"timing the lines of {task.class_name}"))
        params = {
            "task": to_builtins(task),
            "device": device.index,
            "seconds": min(options.budget, SECONDS),
            "ceilings": ceilings_of(known),
        }
        try:
            with alone(device, cancel):
                seconds = opening_seconds(JobClock(options.budget))
                answer = call_naming_stages(worker, "profile_lines", params, cancel, seconds, emit)
        finally:
            worker.release()
    first, source = class_source(task.content, task.class_name)
    profile = from_builtins(
        {
            **answer,
            "path": task.path,
            "class_name": task.class_name,
            "source": source,
            "first_line": first,
            "target": task.target,
            "device": device.name,
        },
        LineProfile,
    )
    return OptimizeResult(
        task=task.name,
        target=task.target,
        device=device.name,
        outcome=JobOutcome.profiled,
        best=None,
        evaluations=0,
        seconds=time.monotonic() - started,
        stop_reason=StopReason.finished.value,
        artifacts={"job": services.job, LINES_FILE: _written(services.folder / "result", profile)},
    )


def read_lines(result: OptimizeResult) -> LineProfile | None:
    """Reads the line profile among the artifacts of `result`. Returns None if the file is missing or not valid."""
    path = result.artifacts.get(LINES_FILE)
    try:
        return None if path is None else decode(Path(path).read_bytes(), LineProfile)
    except (OSError, UsageError):
        return None


def latest_lines(rows: list[JobRow], class_name: str) -> LineProfile | None:
    """Returns the newest line profile of a class, or None. `rows` are the jobs of its file, newest first."""
    for row in rows:
        done = row.options.kind is JobKind.lines and row.state is JobState.done and row.task.class_name == class_name
        profile = read_lines(row.result) if done and row.result is not None else None
        if profile is not None:
            return profile
    return None


def class_source(content: str, class_name: str) -> tuple[int, str]:
    """Returns the first line (counted from 1) and the text of the last top-level class of this name, decorators
    included. If there is none, because the file makes the class in another way, returns 1 and the whole text."""
    lines = content.splitlines(keepends=True)
    for node in reversed(ast.parse(content).body):
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            return first, "".join(lines[first - 1 : node.end_lineno])
    return 1, content


def _written(folder: Path, profile: LineProfile) -> str:
    with boundary(StoreError, "the profile cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / LINES_FILE
        path.write_bytes(encode(profile))
    return str(path)
