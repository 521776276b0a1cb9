"""Give a class inputs: drafted into the file, or recorded from a program that uses it."""

from __future__ import annotations

from typing import Any

from kernel_assistant.session.threads import in_thread
from kernel_assistant.source.draft import draft, with_draft
from kernel_assistant_lsp.commands.arguments import class_of, text_of
from kernel_assistant_lsp.commands.scan import scan
from kernel_assistant_lsp.context import Context


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """`how` "draft": `{"text", "origin", "inserted"}`; "record": as `scan` answers for `program`."""
    if text_of(argument, "how") == "record":
        return await scan(context, argument)
    snapshot, name = class_of(context, argument)
    drafted = await in_thread(lambda: draft(f"{snapshot.path}:{name}", snapshot.text))
    insert = argument.get("insert") is not False and context.documents.opened(snapshot.uri) is not None
    if insert:
        await context.edit(snapshot, with_draft(snapshot.text, drafted.text), f"Inputs of {name}")
    return {"text": drafted.text, "origin": drafted.origin, "inserted": insert}
