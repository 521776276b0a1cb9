"""Time the kernels of a class again."""

from __future__ import annotations

from typing import Any

from kernel_assistant.store import JobKind
from kernel_assistant_lsp.commands.verify import check
from kernel_assistant_lsp.context import Context


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """`{"job"}`."""
    return await check(context, argument, JobKind.profile)
