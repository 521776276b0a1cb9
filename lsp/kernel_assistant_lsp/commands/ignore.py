"""Keep a class out of sight, by a comment above it."""

from __future__ import annotations

from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant_lsp.commands.arguments import class_of
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.silence import ignored, with_comment


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """`{"ignored": class}`."""
    snapshot, name = class_of(context, argument)
    found = [one for one in context.classes(snapshot) if one.name == name]
    if not found:
        raise UsageError(f"{snapshot.path.name} has no module class {name}", "name one that it has")
    if not ignored(snapshot, found[-1]):
        await context.edit(snapshot, with_comment(snapshot, found[-1]), f"Ignore {name}")
    return {"ignored": name}
