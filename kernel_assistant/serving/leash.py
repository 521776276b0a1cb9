"""Holds an engine: `python leash.py SECONDS COMMAND…`. Ends its process group when our input closes.

A program of its own (standard library only), so that an engine ends with its owner even where the owner is killed. The
command gets a session of its own: Ctrl-C in the terminal reaches the owner alone, which then closes the pipe. A process
that makes a session of its own below the engine is not followed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress


def main(grace: float, command: list[str]) -> int:
    """The engine's exit code (128 + n for signal n); 0 where it was ended from outside."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_default_signals,  # noqa: PLW1509 - there is no other thread yet
        )
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201 - the engine's log
        return 127
    threading.Thread(target=_follow, args=(child,), daemon=True).start()
    while sys.stdin.buffer.read(4096):
        pass
    _signal(child.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        child.wait(grace)
    _signal(child.pid, signal.SIGKILL)
    return 0


def _default_signals() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_DFL)


def _follow(child: subprocess.Popen[bytes]) -> None:
    """When the engine's first process has ended, end what it left behind and say how it ended."""
    code = child.wait()
    _signal(child.pid, signal.SIGKILL)
    os._exit(code if code >= 0 else 128 - code)


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    raise SystemExit(main(float(sys.argv[1]), sys.argv[2:]))
