"""The module classes of a document, whether they have a lens or not."""

from __future__ import annotations

from typing import Any

from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.arguments import text_of
from kernel_assistant_lsp.text.classes import why_not
from kernel_assistant_lsp.text.homeless import in_words


async def run(context: Context, argument: dict[str, Any]) -> list[dict[str, Any]]:
    """Return `{"class", "line", "hindrance"}` of each class, in order; lines from 0. `hindrance` is why it cannot be
    optimized, or ""."""
    snapshot = context.documents.get(text_of(argument, "uri"))
    known = await context.first_outline(snapshot)
    return [
        {"class": one.name, "line": one.line - 1, "hindrance": in_words(snapshot, one.name) or why_not(one)}
        for one in known.classes
    ]
