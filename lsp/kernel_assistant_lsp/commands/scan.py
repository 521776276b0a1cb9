"""Run a program of the user's under the recorder, and rank its modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from kernel_assistant.session.scan_process import ScanProcess
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
    process = await ScanProcess.start(program, folder, path, context.settings(path))
    with cast("Protocol", context.server.protocol).ended_early_by(process.stop):
        found = await process.answer()
    context.look_at_all()
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
