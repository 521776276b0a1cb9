"""The files in the folder of a training run that other programs read or write to watch and steer the run
(docs/training_metrics.md)."""

from __future__ import annotations

import os
import socket
import time
from enum import Enum
from pathlib import Path

import msgspec
import psutil

from kernel_assistant.errors import StoreError, UsageError, boundary
from kernel_assistant.records import decode, encode
from kernel_assistant.records.codec import Record

METRICS, STATUS, CONTROL = "metrics.jsonl", "status.json", "control"


class RunState(str, Enum):
    running = "running"
    paused = "paused"
    ended = "ended"
    stopped = "stopped"  # on request
    failed = "failed"
    died = "died"  # never written: the process ended without writing a status

    @property
    def active(self) -> bool:
        return self in (RunState.running, RunState.paused)


class TrainingCommand(str, Enum):
    """The commands that the file `control` of a run may contain."""

    go_on = ""
    pause = "pause"
    stop = "stop"


class RunStatus(Record, frozen=True, kw_only=True):
    """The status of a run. `time` is in seconds since the epoch; process `pid` runs on the machine `host`."""

    stage: str
    state: RunState
    step: int = 0
    message: str = ""
    pid: int = 0
    host: str = ""
    time: float = 0.0


def write_status(run: Path, stage: str, state: RunState, step: int, message: str = "") -> None:
    """Writes the status of the run, with this process as its owner, to the run's folder. Raises StoreError."""
    status = RunStatus(
        stage=stage,
        state=state,
        step=step,
        message=message,
        pid=os.getpid(),
        host=socket.gethostname(),
        time=time.time(),
    )
    replace_file(run / STATUS, encode(status))


def replace_file(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Writes a file atomically: readers see the old or the new content. With `durable`, the content is also forced to
    the disk, so that it survives a power failure. Raises StoreError."""
    with boundary(StoreError, f"cannot write {path}"):
        fresh = path.with_name(f"{path.name}.new")
        with fresh.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        fresh.replace(path)


def read_status(run: Path) -> RunStatus | None:
    """Reads the status of a run; None if it is missing or cannot be read. The state is `died` if the run's process no
    longer exists on this machine."""
    try:
        status = decode((run / STATUS).read_bytes(), RunStatus)
    except (OSError, UsageError):
        return None
    here = status.host == socket.gethostname()
    if status.state.active and here and not psutil.pid_exists(status.pid):
        return msgspec.structs.replace(status, state=RunState.died)
    return status


def command_of(run: Path) -> TrainingCommand:
    """Returns the current command for the run; `go_on` if there is none."""
    try:
        return TrainingCommand((run / CONTROL).read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        return TrainingCommand.go_on


def ask(run: Path, command: TrainingCommand) -> None:
    """Writes the command that makes a run pause, stop or continue. Raises StoreError."""
    with boundary(StoreError, f"cannot write {run / CONTROL}"):
        if command is TrainingCommand.go_on:
            (run / CONTROL).unlink(missing_ok=True)
        else:
            (run / CONTROL).write_text(command.value + "\n", encoding="utf-8")
