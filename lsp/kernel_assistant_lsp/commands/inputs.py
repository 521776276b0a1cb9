"""Give a class inputs: drafted into the file, or recorded from a program that uses it."""

from __future__ import annotations

from typing import Any

from kernel_assistant.session.threads import in_thread
from kernel_assistant.source.draft import draft
from kernel_assistant_lsp.commands.arguments import class_of, text_of
from kernel_assistant_lsp.commands.scan import scan
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.snapshot import Snapshot


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """`how` "draft": `{"text", "origin", "inserted"}`; "record": as `scan` answers for `program`."""
    if text_of(argument, "how") == "record":
        return await scan(context, argument)
    snapshot, name = class_of(context, argument)
    drafted = await in_thread(lambda: draft(f"{snapshot.path}:{name}", snapshot.text))
    insert = argument.get("insert") is not False and context.documents.opened(snapshot.uri) is not None
    if insert:
        await context.edit(snapshot, with_draft(snapshot, drafted.text), f"Inputs of {name}")
    return {"text": drafted.text, "origin": drafted.origin, "inserted": insert}


def with_draft(snapshot: Snapshot, drafted: str) -> str:
    """The text with the draft at its end; without the draft's import where the file has it."""
    lines = drafted.splitlines()
    if any(snapshot.line(number).strip() == "import torch" for number in range(len(snapshot.starts))):
        lines = lines[next(number for number, line in enumerate(lines) if line.startswith("def ")) :]
    end = "\r\n" if "\r\n" in snapshot.text else "\n"
    body = end.join(lines)
    return f"{snapshot.text.rstrip()}{end}{end}{end}{body}{end}"
