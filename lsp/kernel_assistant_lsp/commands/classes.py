"""Commands for the classes of a document: list or ignore them, draft or record their inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from kernel_assistant.errors import UsageError
from kernel_assistant.session.scanning.scan_process import ScanProcess
from kernel_assistant.source.draft import with_draft
from kernel_assistant.store import JobKind
from kernel_assistant_lsp.commands.optimize import drafted, submit
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.arguments import class_of, text_of
from kernel_assistant_lsp.flows.installed import check_own
from kernel_assistant_lsp.names import SCAN
from kernel_assistant_lsp.protocol import Protocol
from kernel_assistant_lsp.silence import ignored, with_comment
from kernel_assistant_lsp.text.classes import why_not
from kernel_assistant_lsp.text.documents import path_of
from kernel_assistant_lsp.text.homeless import in_words
from kernel_assistant_lsp.text.snapshot import Snapshot


async def list_classes(context: Context, argument: dict[str, Any]) -> list[dict[str, Any]]:
    """Lists all module classes of a document, also those that get no lenses.

    Returns `{"class", "line", "hindrance"}` for each class, in order; `line` counts from 0. `hindrance` says why the
    class cannot be optimized; it is "" if it can.
    """
    snapshot = context.documents.get(text_of(argument, "uri"))
    known = await context.first_outline(snapshot)
    return [
        {"class": one.name, "line": one.line - 1, "hindrance": in_words(snapshot, one.name) or why_not(one)}
        for one in known.classes
    ]


async def ignore(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Inserts a comment above a class that hides it from lenses. Returns `{"ignored": class}`. Raises UsageError if the
    document has no such class."""
    snapshot, name = class_of(context, argument)
    matches = [one for one in context.classes(snapshot) if one.name == name]
    if not matches:
        raise UsageError(f"{snapshot.path.name} has no module class {name}", "name one that it has")
    if not ignored(snapshot, matches[-1]):
        await context.edit(snapshot, with_comment(snapshot, matches[-1]), f"Ignore {name}")
    return {"ignored": name}


async def scan(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Runs one of the user's programs under the recorder, which times modules and keeps their inputs, and ranks its
    modules.

    Returns the object that `scan --json` prints. If `program` is missing, returns `{"scan": null, "needs": "program",
    …}` with choices. If the client cancels the request, the program is stopped, and the answer has the calls recorded
    until then.
    """
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
    """Return the folder in which to run the program: the workspace folder that contains the file, else the file's own
    folder."""
    return next((one for one in context.folders() if path.is_relative_to(one)), path.parent)


async def give_inputs(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Drafts a comment with inputs above a class, or records its inputs from a program that uses it.

    If `how` is "draft", returns `{"text", "origin", "problem", "inserted", "job"}`; if it is "record", the answer of
    `scan`. The class is run with the draft before; `problem` says why that failed. The argument `text` is a draft of an
    earlier call, to be used instead of a new one. With `optimize` a job starts after the draft is inserted.
    """
    if text_of(argument, "how") == "record":
        return await scan(context, argument)
    snapshot, name = class_of(context, argument)
    check_own(snapshot, name)
    draft = {"text": argument["text"]} if "text" in argument else await drafted(context, snapshot, name)
    insert = argument.get("insert") is not False and context.documents.opened(snapshot.uri) is not None
    if insert:
        now, _ = class_of(context, argument)
        await context.edit(now, with_draft(now.text, name, text_of(draft, "text")), f"Inputs of {name}")
    begun = await _optimize(context, argument, snapshot) if insert and argument.get("optimize") is True else {}
    return {"origin": "", "problem": "", **draft, "inserted": insert, "job": begun.get("job")}


async def _optimize(context: Context, argument: dict[str, Any], before: Snapshot) -> dict[str, Any]:
    """Starts a job once the editor has sent the text that contains the draft. This text may arrive before or after the
    editor's answer to the edit."""
    await context.changed_since(before)
    return await submit(context, argument, JobKind.optimize)
