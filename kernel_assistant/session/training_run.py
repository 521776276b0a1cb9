"""The folder of a training run as those see it who watch it: docs/training_metrics.md."""

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
    stopped = "stopped"  # as somebody asked
    failed = "failed"
    died = "died"  # never written: its process is gone without a word

    @property
    def active(self) -> bool:
        return self in (RunState.running, RunState.paused)


class Wish(str, Enum):
    """What `control` says."""

    go_on = ""
    pause = "pause"
    stop = "stop"


class RunStatus(Record, frozen=True, kw_only=True):
    """`time` in seconds since the epoch; `host` is the machine of process `pid`."""

    stage: str
    state: RunState
    step: int = 0
    message: str = ""
    pid: int = 0
    host: str = ""
    time: float = 0.0


def write_status(run: Path, stage: str, state: RunState, step: int, message: str = "") -> None:
    """Of this process. Raises StoreError."""
    status = RunStatus(
        stage=stage,
        state=state,
        step=step,
        message=message,
        pid=os.getpid(),
        host=socket.gethostname(),
        time=time.time(),
    )
    with boundary(StoreError, f"cannot write {run / STATUS}"):
        fresh = run / f"{STATUS}.new"
        fresh.write_bytes(encode(status))
        fresh.replace(run / STATUS)


def read_status(run: Path) -> RunStatus | None:
    """None where it is not there or cannot be read. Where its process is gone the state is `died`."""
    try:
        status = decode((run / STATUS).read_bytes(), RunStatus)
    except (OSError, UsageError):
        return None
    here = status.host == socket.gethostname()
    if status.state.active and here and not psutil.pid_exists(status.pid):
        return msgspec.structs.replace(status, state=RunState.died)
    return status


def wish_of(run: Path) -> Wish:
    """What is wanted of the run now."""
    try:
        return Wish((run / CONTROL).read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        return Wish.go_on


def ask(run: Path, wish: Wish) -> None:
    """Pause it, stop it, or let it go on. Raises StoreError."""
    with boundary(StoreError, f"cannot write {run / CONTROL}"):
        if wish is Wish.go_on:
            (run / CONTROL).unlink(missing_ok=True)
        else:
            (run / CONTROL).write_text(wish.value + "\n", encoding="utf-8")
