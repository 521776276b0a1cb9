"""`kernel-assistant tui`: from a terminal to the application and back."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_assistant.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from kernel_assistant_tui.app import KernelAssistant

#: A terminal that is gone cannot take the last words; the process ends all the same.
_LEAVE_S = 2.0


def run(root: Path, flags: dict[str, object]) -> int:
    """The exit code. Raises UsageError where there is no terminal, no such path, or a setting does not fit."""
    _check(root)
    # Parsing in a thread must not keep the event loop waiting for its turn.
    sys.setswitchinterval(0.001)
    from kernel_assistant_tui.app import KernelAssistant

    app = KernelAssistant(root, flags)
    asyncio.run(_until_left(app))
    return app.return_code or EXIT_OK


async def _until_left(app: KernelAssistant) -> None:
    loop = asyncio.get_running_loop()

    def leave(number: int, frame: object) -> None:
        """Jobs stay with the host."""
        # Drawing on a terminal that is gone may block the loop for ever: hence neither by the loop, nor without an end.
        last = threading.Timer(_LEAVE_S, os._exit, (128 + number,))
        last.daemon = True
        last.start()
        loop.call_soon_threadsafe(partial(app.exit, return_code=128 + number))

    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, leave)
    await app.run_async()


def _check(root: Path) -> None:
    if not root.exists():
        raise UsageError(f"{root} does not exist", "name a folder or a Python file")
    if root.is_file() and root.suffix != ".py":
        raise UsageError(f"{root} is not a Python file", "name a folder or a Python file")
    # A browser's terminal is a pipe (`textual serve`).
    if "TEXTUAL_DRIVER" not in os.environ and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("the terminal interface needs a terminal", "kernel-assistant --help lists the commands")
