"""Give a class inputs: drafted above it, or recorded from a program that uses it."""

from __future__ import annotations

from typing import Any

from kernel_assistant.source.draft import with_draft
from kernel_assistant.store import JobKind
from kernel_assistant_lsp.commands.optimize import submit
from kernel_assistant_lsp.commands.scan import scan
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.arguments import class_of, text_of
from kernel_assistant_lsp.flows.drafted import drafted
from kernel_assistant_lsp.flows.installed import check_own
from kernel_assistant_lsp.text.snapshot import Snapshot


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """For `how` "draft" return `{"text", "origin", "problem", "inserted", "job"}`, for "record" the answer of `scan`.

    A draft is run before it is returned; `problem` says why it does not run. `text` is a draft of an earlier call to
    use instead of a new one. With `optimize` a job starts after the draft is inserted.
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
    """Start a job after the editor has sent the text with the draft, which comes before or after its answer."""
    await context.changed_since(before)
    return await submit(context, argument, JobKind.optimize)
