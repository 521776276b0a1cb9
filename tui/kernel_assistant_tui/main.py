"""`kernel-assistant tui`: from a terminal to the application and back."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from kernel_assistant.errors import EXIT_OK, UsageError

#: A terminal that is gone cannot take the last words; the process ends all the same.
_HANGUP_S = 2.0


def run(root: Path, flags: dict[str, object]) -> int:
    """The exit code. Raises UsageError where there is no terminal, no such path, or a setting does not fit."""
    _check(root)
    # Parsing in a thread must not keep the event loop waiting for its turn.
    sys.setswitchinterval(0.001)
    from kernel_assistant_tui.app import KernelAssistant

    app = KernelAssistant(root, flags)
    asyncio.run(_until_left(app))
    code = app.return_code or EXIT_OK
    sys.stdout.flush()
    # Threads may be waiting for a host or a store; there is nothing of theirs to save.
    return code


async def _until_left(app: object) -> None:
    from kernel_assistant_tui.app import KernelAssistant

    assert isinstance(app, KernelAssistant)
    loop = asyncio.get_running_loop()

    def hang_up() -> None:
        # Jobs stay with the host. Drawing on a terminal that is gone may block for ever.
        loop.call_later(_HANGUP_S, os._exit, 128 + signal.SIGHUP)
        app.exit(128 + signal.SIGHUP, return_code=128 + signal.SIGHUP)

    loop.add_signal_handler(signal.SIGHUP, hang_up)
    loop.add_signal_handler(signal.SIGTERM, lambda: app.exit(128 + signal.SIGTERM, return_code=128 + signal.SIGTERM))
    await app.run_async()


def _check(root: Path) -> None:
    if not root.exists():
        raise UsageError(f"{root} does not exist", "name a folder or a Python file")
    if root.is_file() and root.suffix != ".py":
        raise UsageError(f"{root} is not a Python file", "name a folder or a Python file")
    # A browser's terminal is a pipe (`textual serve`).
    if "TEXTUAL_DRIVER" not in os.environ and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("the terminal interface needs a terminal", "kernel-assistant --help lists the commands")
