"""Runs `scan` in a separate process that answers in JSON, for front ends whose terminal the program cannot share."""

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

#: Whoever chooses a class from a list, or asks for the inputs of one, may mean one that ranks low.
MANY = ("--top", "100", "--keep", "100")


class ScanProcess:
    """A process that runs `kernel-assistant scan --json -- COMMAND`. `stop` ends it and keeps what was recorded."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    @classmethod
    async def start(cls, command: Sequence[str], folder: Path, near: Path, settings: Settings) -> ScanProcess:
        """Starts to scan `command` in `folder`. A word `python` is replaced by the interpreter that belongs to the file
        or folder `near`.

        Raises MissingError if there is no interpreter.
        """
        python = await in_thread(lambda: _interpreter(near, settings))
        return await cls.run([python if word == "python" else word for word in command], folder)

    @classmethod
    async def run(cls, command: Sequence[str], folder: Path, options: Sequence[str] = ()) -> ScanProcess:
        """Starts to scan `command` in `folder`; `options` are further options of the command `scan`."""
        # A separate process, because the scanned program shares terminal and signals, which a server does not have.
        # With -P, a folder `kernel_assistant/` in the current folder is not imported instead of this package.
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "kernel_assistant", "scan", "--json", *MANY, *options, "--", *command),
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
        """Waits for the scan and returns its JSON output. Raises UsageError if the program could not be scanned."""
        try:
            output, complaints = await self._child.communicate()
        finally:
            self.stop()
        return _answer(output, complaints.decode(errors="replace"))


def _answer(output: bytes, complaints: str) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError:
        lines = [line for line in complaints.strip().splitlines() if line]
        causes = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        cause = causes[-1] if causes else "the program could not be scanned"
        raise UsageError(cause, "\n".join(lines[-8:]) or "run the program by hand first") from None
    return answer


def _interpreter(near: Path, settings: Settings) -> str:
    from kernel_assistant.source.interpreter import find_interpreter

    return find_interpreter(near, settings.python or None).path
