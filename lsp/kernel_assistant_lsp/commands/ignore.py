"""Hide a class from lenses by a comment above it."""

from __future__ import annotations

from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.arguments import class_of
from kernel_assistant_lsp.silence import ignored, with_comment


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return `{"ignored": class}`."""
    snapshot, name = class_of(context, argument)
    matches = [one for one in context.classes(snapshot) if one.name == name]
    if not matches:
        raise UsageError(f"{snapshot.path.name} has no module class {name}", "name one that it has")
    if not ignored(snapshot, matches[-1]):
        await context.edit(snapshot, with_comment(snapshot, matches[-1]), f"Ignore {name}")
    return {"ignored": name}
