"""Runs an engine as a child process: `python leash.py SECONDS COMMAND…`. Ends the engine's process group when stdin
closes.

This is a separate program (standard library only), so that an engine ends with its owner even if the owner is killed.
The command gets its own session: Ctrl-C in the terminal reaches only the owner, which then closes the pipe. A
descendant of the engine that makes its own session is not ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress


def main(grace: float, command: list[str]) -> int:
    """Runs the engine until it ends or stdin closes; in the latter case the engine has `grace` seconds to end by itself
    before it is killed. Returns its exit code (128 + n for signal n), 0 if this program ended it, 127 if it cannot be
    started."""
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
    """Waits until the engine's first process has ended, kills the engine's other processes, and exits with the code of
    the first one (128 + n for signal n)."""
    code = child.wait()
    _signal(child.pid, signal.SIGKILL)
    os._exit(code if code >= 0 else 128 - code)


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    raise SystemExit(main(float(sys.argv[1]), sys.argv[2:]))
