"""Time each line of a class's forward, as its text is in the editor. Inlay hints and hovers show the result."""

from __future__ import annotations

from typing import Any

from kernel_assistant.store import JobKind
from kernel_assistant_lsp.commands.optimize import submit
from kernel_assistant_lsp.context import Context


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return `{"job"}`, or the answer of `optimize` for a class without inputs."""
    return await submit(context, argument, JobKind.lines)
