"""Run one of the user's programs under the recorder, and rank its modules by time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from kernel_assistant.session.scanning.scan_process import ScanProcess
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.arguments import text_of
from kernel_assistant_lsp.names import SCAN
from kernel_assistant_lsp.protocol import Protocol
from kernel_assistant_lsp.text.documents import path_of


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return what `scan --json` prints, or `{"scan": null, "needs": "program", …}` with choices without a `program`.

    If the request is cancelled, the program is stopped and the answer has what was recorded until then.
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
        answer = await process.answer()
    context.look_at_all()
    return {"scan": answer["id"], **answer}


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
    """Return the folder to run the program in: the workspace folder that contains the file, else the file's own."""
    return next((one for one in context.folders() if path.is_relative_to(one)), path.parent)
