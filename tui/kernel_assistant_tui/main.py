"""`kernel-assistant tui`: runs the application in a terminal."""

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

#: Seconds to exit after a signal; if the terminal is gone and blocks, the process is ended.
_LEAVE_S = 2.0


def run(root: Path, flags: dict[str, object]) -> int:
    """Run the application and return the exit code. Raises UsageError if there is no terminal, if `root` does not
    exist, or for an invalid setting."""
    _check(root)
    # Switch threads often, so that parsing in a thread does not delay the event loop.
    sys.setswitchinterval(0.001)
    from kernel_assistant_tui.app import KernelAssistant

    app = KernelAssistant(root, flags)
    asyncio.run(_until_left(app))
    return app.return_code or EXIT_OK


async def _until_left(app: KernelAssistant) -> None:
    loop = asyncio.get_running_loop()

    def leave(number: int, frame: object) -> None:
        """Exit on a signal; jobs continue in the host."""
        # Drawing on a terminal that is gone may block the event loop for ever, so a timer ends the process.
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
