"""Runs the command of a scan as the user would, with our recorder on its import path. The recorder times the calls of
modules and keeps their inputs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TextIO

import kernel_assistant
from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.records import decode
from kernel_assistant.records.scan import Recording

_START = Path(kernel_assistant.__file__).parent / "worker" / "recording" / "start"


@dataclass(frozen=True)
class ProgramRun:
    """One run of a command. `exit_code` is 128 + the signal if a signal ended it; `seconds` is the whole time.
    `recordings` has (folder, recording) of each process, the process with most time in modules first. `reached` counts
    the Python processes that loaded the recorder."""

    exit_code: int
    seconds: float
    reached: int
    recordings: tuple[tuple[Path, Recording], ...]


def run_program(command: tuple[str, ...], folder: Path, *, children: bool, quiet: bool, counters: Path) -> ProgramRun:
    """Runs `command` under the recorder, with this process's stdin, stdout and stderr (with `quiet` its output goes to
    stderr). Ctrl-C and SIGTERM go to the program. Applied kernels write their call counts to the folder `counters`.

    `folder` is created for the recordings; `children` records child processes too. Raises UsageError if the command
    does not exist or is not executable, MissingError if it cannot be started for another reason.
    """
    folder.mkdir(mode=0o700)
    began = time.monotonic()
    environment = {**os.environ, **_recording(folder, children=children), "KERNEL_ASSISTANT_COUNTERS": str(counters)}
    exit_code = run_here(command, environment, quiet=quiet, by="scan")
    return ProgramRun(exit_code, time.monotonic() - began, len(list(folder.iterdir())), _recordings(folder))


def time_program(command: tuple[str, ...], where: str, folder: Path, environment: dict[str, str]) -> ProgramRun:
    """Runs `command` in the folder `where` and times those calls of modules that no other module makes; keeps no inputs
    and discards the program's output. The recording goes to `folder`. `environment` has variables to add. Raises as
    `run_program` does."""
    folder.mkdir(mode=0o700)
    began = time.monotonic()
    own = {**_recording(folder, children=False), "KERNEL_ASSISTANT_SCAN_OUTERMOST": "1", **environment}
    exit_code = run_here(command, {**os.environ, **own}, quiet=True, by="compare", where=where, silent=True)
    return ProgramRun(exit_code, time.monotonic() - began, len(list(folder.iterdir())), _recordings(folder))


def run_here(
    command: tuple[str, ...],
    environment: dict[str, str],
    *,
    quiet: bool,
    by: str,
    where: str | None = None,
    silent: bool = False,
) -> int:
    """Runs `command` with the variables `environment`, in the folder `where` if it is given. With `quiet` its output
    goes to stderr, with `silent` nowhere. Returns the exit code, or 128 + the signal that ended the command.

    `by` is the name of our own command, for error messages. Raises as `run_program` does.
    """
    output: int | TextIO | None = subprocess.DEVNULL if silent else sys.stderr if quiet else None
    errors = subprocess.DEVNULL if silent else None
    try:
        child = subprocess.Popen(command, env=environment, stdout=output, stderr=errors, cwd=where)
    except FileNotFoundError as error:
        raise UsageError(f"{command[0]} is not a command", f"name one, such as: {by} -- python script.py") from error
    except PermissionError as error:
        raise UsageError(
            f"{command[0]} cannot be executed", f"say with what: {by} -- python {' '.join(command)}"
        ) from error
    except OSError as error:
        raise MissingError(f"{command[0]} cannot be started: {error.strerror}", "check the command") from error
    with _signals_to(child):
        code = child.wait()
    return code if code >= 0 else 128 - code


def explain_nothing(ran: ProgramRun) -> UsageError:
    """Returns an error that explains why a run recorded no call of a module."""
    if not ran.reached:
        return UsageError(
            "the command started no Python that could be recorded",
            "start Python without -I, -E and -S, and keep PYTHONPATH: scan -- python script.py",
        )
    if not ran.recordings:
        return UsageError(
            "the program did not import torch", "scan a command that runs your model; --children if it starts others"
        )
    return UsageError(
        "the program called no nn.Module that could be recorded",
        "scan a command that runs your model eagerly; --children if it starts other processes",
    )


def _recording(folder: Path, *, children: bool) -> dict[str, str]:
    """Returns the environment variables with which a Python program loads the recorder, which writes to `folder`."""
    path = os.environ.get("PYTHONPATH", "")
    return {
        "PYTHONPATH": f"{_START}{os.pathsep}{path}" if path else str(_START),
        "KERNEL_ASSISTANT_SCAN": str(folder),
        "KERNEL_ASSISTANT_SCAN_CHILDREN": "1" if children else "",
    }


@contextmanager
def _signals_to(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """During the `with` block, ignores Ctrl-C, which the terminal sends to `child` too, and passes SIGTERM on to it."""

    def hand_on(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    def leave(number: int, frame: FrameType | None) -> None:
        return None

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, leave),
        signal.SIGTERM: signal.signal(signal.SIGTERM, hand_on),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _recordings(folder: Path) -> tuple[tuple[Path, Recording], ...]:
    recordings = [
        (path.parent, decode(path.read_bytes(), Recording)) for path in sorted(folder.glob("*/recording.json"))
    ]
    return tuple(sorted(recordings, key=lambda item: -modules_seconds(item[1])))


def modules_seconds(recording: Recording) -> float:
    """Returns the seconds that the program spent in modules; a nested module is not counted twice."""
    return sum(max(cls.share_seconds, 0.0) for cls in recording.classes)
