"""A scan for front ends that have no terminal to share with the program: in a process of its own, answers as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernel_assistant.config import Settings
from kernel_assistant.errors import UsageError
from kernel_assistant.session.threads import in_thread


class ScanProcess:
    """`kernel-assistant scan --json -- COMMAND`, which its owner may stop: what was called until then is kept."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    @classmethod
    async def start(cls, command: Sequence[str], folder: Path, near: Path, settings: Settings) -> ScanProcess:
        """Run `command` in `folder`; the word `python` means the interpreter of the project that `near` lies in.

        Raises MissingError where there is none.
        """
        python = await in_thread(lambda: _interpreter(near, settings))
        words = [python if word == "python" else word for word in command]
        # A process of its own: the recorder's program shares its terminal and its signals, which a server has none of.
        # A folder that holds `kernel_assistant/` must not be what is started (-P).
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "kernel_assistant", "scan", "--json", "--", *words),
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        return cls(child)

    def stop(self) -> None:
        if self._child.returncode is None:
            self._child.terminate()

    async def answer(self) -> dict[str, Any]:
        """What `scan --json` prints. Raises UsageError where the program could not be scanned."""
        try:
            said, complaints = await self._child.communicate()
        finally:
            self.stop()
        return _answer(said, complaints.decode(errors="replace"))


def _answer(said: bytes, complaints: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(said)
    except ValueError:
        lines = [line for line in complaints.strip().splitlines() if line]
        causes = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        cause = causes[-1] if causes else "the program could not be scanned"
        raise UsageError(cause, "\n".join(lines[-8:]) or "run the program by hand first") from None
    return found


def _interpreter(near: Path, settings: Settings) -> str:
    from kernel_assistant.source.interpreter import find_interpreter

    return find_interpreter(near, settings.python or None).path
