"""Runs the command of a scan as the user would, with the recorder on its path."""

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

import kernel_assistant
from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.records import decode
from kernel_assistant.records.scan import Recording

_START = Path(kernel_assistant.__file__).parent / "worker" / "recording" / "start"


@dataclass(frozen=True)
class Ran:
    """One run: the program's exit code (128 + the signal that ended it), and what its processes recorded, the one with
    most time in modules first. `reached` counts the Pythons that the recorder got into."""

    exit_code: int
    seconds: float
    reached: int
    recordings: tuple[tuple[Path, Recording], ...]


def run_program(command: tuple[str, ...], folder: Path, *, children: bool, quiet: bool, counters: Path) -> Ran:
    """Run `command` here, its streams ours (`quiet`: its output goes to stderr). Ctrl-C and SIGTERM are the program's.
    Applied kernels leave what they served in the folder `counters`.

    Raises UsageError for a command that is not there, MissingError for one that may not run.
    """
    folder.mkdir(mode=0o700)
    began = time.monotonic()
    try:
        child = subprocess.Popen(
            command, env=_environment(folder, children, counters), stdout=sys.stderr if quiet else None
        )
    except FileNotFoundError as error:
        raise UsageError(f"{command[0]} is not a command", "name one, such as: scan -- python script.py") from error
    except PermissionError as error:
        raise UsageError(
            f"{command[0]} cannot be executed", f"say with what: scan -- python {' '.join(command)}"
        ) from error
    except OSError as error:
        raise MissingError(f"{command[0]} cannot be started: {error.strerror}", "check the command") from error
    with _signals_to(child):
        code = child.wait()
    exit_code = code if code >= 0 else 128 - code
    return Ran(exit_code, time.monotonic() - began, len(list(folder.iterdir())), _recordings(folder))


def explain_nothing(ran: Ran) -> UsageError:
    """Why a run left no call of a module."""
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


def _environment(folder: Path, children: bool, counters: Path) -> dict[str, str]:
    path = os.environ.get("PYTHONPATH", "")
    return {
        **os.environ,
        "PYTHONPATH": f"{_START}{os.pathsep}{path}" if path else str(_START),
        "KERNEL_ASSISTANT_SCAN": str(folder),
        "KERNEL_ASSISTANT_SCAN_CHILDREN": "1" if children else "",
        "KERNEL_ASSISTANT_COUNTERS": str(counters),
    }


@contextmanager
def _signals_to(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """The terminal sends Ctrl-C to the program too, which decides; a SIGTERM to us is handed on."""

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
    found = [(path.parent, decode(path.read_bytes(), Recording)) for path in sorted(folder.glob("*/recording.json"))]
    return tuple(sorted(found, key=lambda item: -modules_seconds(item[1])))


def modules_seconds(recording: Recording) -> float:
    """Time in modules; nothing counts twice."""
    return sum(max(cls.share_seconds, 0.0) for cls in recording.classes)
