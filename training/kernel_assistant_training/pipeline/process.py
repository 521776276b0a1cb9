"""Starts the process of one stage and waits for it. The process ends when the pipeline ends, obeys stop commands, and
is killed if it does not stop in time."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path

from kernel_assistant.errors import StoreError, boundary
from kernel_assistant.session.training_run import RunState, TrainingCommand, ask, command_of, read_status

#: Seconds between two checks, and between repeats of a command: a stage ignores commands from before it started.
TICK_S, REPEAT_S = 0.25, 1.0
_PR_SET_PDEATHSIG = 1


class StopCause(str, Enum):
    """Why a stage ended: by itself, by a stop command of the user, at its time limit, or by a signal. If several causes
    apply, the last in this order counts."""

    itself = "ended"
    asked = "stopped"
    limit = "limit"
    interrupted = "interrupted"


#: Seconds from a cause to SIGTERM, upon which a stage saves a checkpoint, and to SIGKILL. If a person asked for the
#: stop, there is no deadline: the stage finishes its step.
DEADLINES = {StopCause.limit: (30.0, 45.0), StopCause.interrupted: (0.0, 30.0)}


def start(command: Sequence[str], log: Path, lock: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Starts a command in a session of its own; returns its process. The output is appended to `log`, and the process
    inherits the file descriptor `lock`, so that the run stays locked while it lives. `environment` is added to the
    environment variables. Raises StoreError if the command cannot be started or `log` cannot be opened."""
    parent = os.getpid()
    with boundary(StoreError, f"cannot start {command[0]} with its output in {log}"), log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
            pass_fds=(lock,),
            preexec_fn=lambda: _end_with(parent),  # noqa: PLW1509 - the pipeline has no other thread
        )


def wait(
    process: subprocess.Popen[bytes],
    stage: Path,
    run: Path,
    signals: Sequence[int],
    observe: Callable[[float, bool], bool],
) -> tuple[int, StopCause]:
    """Waits until the process has ended, and passes on stop and pause commands meanwhile. Returns its exit code, as a
    shell reports it, and why it ended. `stage` and `run` are the folders with the status and control files of the stage
    and of the run; `signals` are the signals that the pipeline has received. `observe` is called with the seconds since
    its last call and whether the stage is paused, and returns whether the time limit is reached."""
    observed, since, repeated = time.monotonic(), 0.0, 0.0
    cause, passed_on, terminated = StopCause.itself, TrainingCommand.go_on, False
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(TICK_S)
            now, status, wanted = time.monotonic(), read_status(stage), command_of(run)
            over = observe(now - observed, status is not None and status.state is RunState.paused)
            observed = now
            if process.returncode is not None:
                break
            asked, limit = wanted is TrainingCommand.stop, StopCause.limit if over else StopCause.itself
            latest = StopCause.interrupted if signals else StopCause.asked if asked else limit
            if list(StopCause).index(latest) > list(StopCause).index(cause):
                cause, since = latest, now
            if cause in (StopCause.asked, StopCause.limit):
                wanted = TrainingCommand.stop
            late = wanted is not TrainingCommand.go_on and now - repeated >= REPEAT_S
            if stage.is_dir() and (wanted is not passed_on or late):
                ask(stage, wanted)
                passed_on, repeated = wanted, now
            terminate, kill = DEADLINES.get(cause, (float("inf"), float("inf")))
            if now - since >= terminate and not terminated:
                process.terminate()  # once: a second signal would interrupt the step
                terminated = True
            if now - since >= kill or len(signals) > 1:
                _kill(process)
    finally:
        # What is left of the process group is killed, also after an error.
        _kill(process)
        process.wait()
        ask(stage, TrainingCommand.go_on)
    status, code = read_status(stage), process.returncode
    if code == 0 and cause is StopCause.itself and status is not None and status.state is RunState.stopped:
        # This stage was stopped by its own control file: the next one must not begin.
        cause = StopCause.asked
    return code if code >= 0 else 128 - code, cause


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _end_with(parent: int) -> None:
    """Makes Linux send SIGTERM to this process when the pipeline's process `parent` ends for any reason. Called in the
    child process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)
