"""Opens a file in the user's editor, while the application is suspended."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from kernel_assistant.errors import MissingError, UsageError

if TYPE_CHECKING:
    from kernel_assistant_tui.screens.main import MainScreen

#: Editors that take `+LINE` before the file's name.
_KNOW_LINES = frozenset(("vi", "vim", "nvim", "nano", "emacs", "emacsclient", "micro", "kak", "joe", "ne", "mg"))


async def edit(screen: MainScreen) -> None:
    module = screen.subject
    if module is not None:
        await open_editor(screen, module.path, module.line)


async def open_editor(screen: MainScreen, path: Path, line: int) -> None:
    """Open the editor, wait until it ends, and read the changed file again. Raises MissingError if the editor cannot
    be started, UsageError if the application cannot be suspended."""
    command = editor_command(path, line)
    try:
        with screen.app.suspend():
            outcome = _run(command)
    except SuspendNotSupported as error:
        raise UsageError("an editor needs a terminal of its own", f"open {path}:{line} yourself") from error
    if isinstance(outcome, OSError):
        raise MissingError(f"{command[0]} cannot be started: {outcome.strerror}", "set EDITOR to one that is there")
    if outcome:
        screen.say(f"{command[0]} ended with exit code {outcome}", severity="warning")
    screen.refresh()
    await screen.following.look(frozenset({path}))


def _run(command: list[str]) -> int | OSError:
    """Run the editor. Return its exit code, or the error if it cannot be started. The error is not raised, because an
    exception would leave the application suspended.
    """
    try:
        return subprocess.run(command, check=False).returncode
    except OSError as error:
        return error


def editor_command(path: Path, line: int) -> list[str]:
    words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    line_option = [f"+{line}"] if Path(words[0]).name in _KNOW_LINES else []
    return [*words, *line_option, str(path)]
