"""A job that times the lines of a module's forward, and where its result is found again."""

from __future__ import annotations

import ast
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kernel_assistant.environment.ceilings import ceilings_of, with_ceilings
from kernel_assistant.environment.device_locks import alone
from kernel_assistant.errors import StoreError, UsageError, boundary
from kernel_assistant.events import AnyEvent, Progress
from kernel_assistant.records import JobOutcome, KernelTask, OptimizeResult, StopReason
from kernel_assistant.records.codec import decode, encode, from_builtins, to_builtins
from kernel_assistant.records.line_profile import LineProfile
from kernel_assistant.session.jobs import JobServices
from kernel_assistant.store import JobKind, JobOptions, JobRow, JobState
from kernel_assistant.targets.base import DeviceFacts

LINES_FILE = "lines.json"
#: For repeating the module, whatever the budget of a search is.
SECONDS = 5.0
#: Opening a module takes as long as it does; a hanging one is ended with the worker.
MOST_SECONDS = 600.0


def profile_lines(
    task: KernelTask,
    options: JobOptions,
    device: DeviceFacts,
    *,
    emit: Callable[[AnyEvent], None],
    cancel: threading.Event,
    services: JobServices,
) -> OptimizeResult:
    """Time the lines under the user's interpreter and keep the `LineProfile`. Raises what opening the task raises."""
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
                answer = worker.call("profile_lines", params, timeout=MOST_SECONDS, cancel=cancel)
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
    """The profile among the artifacts, if it is still there and ours. None otherwise."""
    path = result.artifacts.get(LINES_FILE)
    try:
        return None if path is None else decode(Path(path).read_bytes(), LineProfile)
    except (OSError, UsageError):
        return None


def latest_lines(rows: list[JobRow], class_name: str) -> LineProfile | None:
    """The newest profile of a class among the jobs of its file (newest first, as the store gives them)."""
    for row in rows:
        done = row.options.kind is JobKind.lines and row.state is JobState.done and row.task.class_name == class_name
        profile = read_lines(row.result) if done and row.result is not None else None
        if profile is not None:
            return profile
    return None


def class_source(content: str, class_name: str) -> tuple[int, str]:
    """First line (from 1) and text of the last top-level class of this name, decorators included; the whole text where
    there is none (a class that the file makes in another way)."""
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
