"""Run a program of the user's under the recorder, and rank its modules."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, cast

from kernel_assistant.errors import UsageError
from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.commands.arguments import text_of
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.documents import path_of
from kernel_assistant_lsp.names import SCAN
from kernel_assistant_lsp.protocol import Protocol


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """As `scan --json` prints it; without a `program` `{"scan": null, "needs": "program", …}` with choices.

    A request that is cancelled ends the program and answers with what was recorded until then.
    """
    return await scan(context, argument)


async def scan(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    path = path_of(text_of(argument, "uri"))
    program = argument.get("program")
    if not isinstance(program, list) or not program or not all(isinstance(word, str) for word in program):
        return _needed(argument, path)
    folder = _folder(context, path)
    found = await in_thread(lambda: _interpreter(context, path))
    command = [found if word == "python" else word for word in program]
    # A process of its own: the recorder's program shares its terminal and its signals, which a server has none of.
    # A folder that holds `kernel_assistant/` must not be what is started (-P).
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "kernel_assistant", "scan", "--json", "--", *command),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )

    def stop() -> None:
        if child.returncode is None:
            child.terminate()

    try:
        with cast("Protocol", context.server.protocol).ended_early_by(stop):
            said, complaints = await child.communicate()
    finally:
        stop()
    context.look_at_all()
    return _answer(said, complaints.decode(errors="replace"))


def _answer(said: bytes, complaints: str) -> dict[str, Any]:
    try:
        found = json.loads(said)
    except ValueError:
        lines = [line for line in complaints.strip().splitlines() if line]
        causes = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        cause = causes[-1] if causes else "the program could not be scanned"
        raise UsageError(cause, "\n".join(lines[-8:]) or "run the program by hand first") from None
    return {"scan": found["id"], **found}


def _needed(argument: dict[str, Any], path: Path) -> dict[str, Any]:
    programs = [["python", path.name], ["python", "-m", "pytest", "-q"]]
    return {
        "scan": None,
        "needs": "program",
        "message": "name a program that uses the module: a script or a test",
        "choices": [
            {"title": " ".join(one), "command": SCAN, "arguments": [{**argument, "program": one}]} for one in programs
        ],
    }


def _folder(context: Context, path: Path) -> Path:
    """Where the program runs: the workspace folder that holds the file, else the file's own."""
    return next((one for one in context.folders() if path.is_relative_to(one)), path.parent)


def _interpreter(context: Context, path: Path) -> str:
    from kernel_assistant.source.interpreter import find_interpreter

    return find_interpreter(path, context.settings(path).python or None).path
