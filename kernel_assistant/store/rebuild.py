"""Rebuilds a damaged database from the folders of jobs.

Jobs with a result are restored, with their episodes. Lost are: jobs that failed or never ran, conversations with
models, marks of discarded jobs, and the list of applied edits, in which `undo` looks up the edit of a job.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from kernel_assistant.errors import UsageError
from kernel_assistant.events import AnyEvent, JobFinished, JobQueued, JobStarted, decode_event
from kernel_assistant.records import JobOutcome, KernelTask, OptimizeResult, Trajectory, decode
from kernel_assistant.store.rows import JobKind, JobOptions, JobRow, JobState

LINES, TRAJECTORY = "lines.json", "trajectory.json"


@dataclass(frozen=True)
class RebuiltJob:
    """A job as its folder describes it. `trajectory` is the record of its episode, None if it had none."""

    row: JobRow
    trajectory: Trajectory | None


def kept_jobs(jobs_dir: Path) -> list[RebuiltJob]:
    """Returns the jobs that the folders in `jobs_dir` describe, in order of their numbers. A folder that cannot be read
    is skipped."""
    folders = [folder for folder in jobs_dir.iterdir() if folder.name.isdigit()] if jobs_dir.is_dir() else []
    jobs = [_kept(folder) for folder in sorted(folders, key=lambda folder: int(folder.name))]
    return [one for one in jobs if one is not None]


def _kept(folder: Path) -> RebuiltJob | None:
    try:
        task = decode((folder / "result" / "task.json").read_bytes(), KernelTask)
        path = folder / "result" / TRAJECTORY
        trajectory = decode(path.read_bytes(), Trajectory) if path.is_file() else None
        return RebuiltJob(_row(folder, task, _events(folder / "events.jsonl")), trajectory)
    except (OSError, UsageError, ValueError):
        return None


def _row(folder: Path, task: KernelTask, events: list[AnyEvent]) -> JobRow:
    row = JobRow(
        id=folder.name,
        task=task,
        options=JobOptions(kind=_kind(folder / "result")),
        state=JobState.interrupted,
        created=(folder / "result").stat().st_mtime,
    )
    for event in events:
        row = _after(row, event)
    return row


def _after(row: JobRow, event: AnyEvent) -> JobRow:
    change = msgspec.structs.replace
    match event:
        case JobQueued():
            return change(row, created=event.time)
        case JobStarted():
            return change(row, device=event.device, started=event.time)
        case JobFinished():
            return change(row, state=_state(event.result), ended=event.time, result=event.result)
    return row


def _state(result: OptimizeResult) -> JobState:
    return JobState.cancelled if result.outcome is JobOutcome.cancelled else JobState.done


def _kind(result: Path) -> JobKind:
    if (result / LINES).exists():
        return JobKind.lines
    return JobKind.optimize if (result / TRAJECTORY).exists() else JobKind.verify


def _events(path: Path) -> list[AnyEvent]:
    """Returns the events of a log, up to the first that cannot be read."""
    events: list[AnyEvent] = []
    for line in path.read_bytes().splitlines() if path.is_file() else []:
        try:
            events.append(decode_event(line))
        except msgspec.DecodeError:
            break
    return events
