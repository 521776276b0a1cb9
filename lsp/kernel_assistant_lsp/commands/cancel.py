"""Stop a job; what it found is kept."""

from __future__ import annotations

from typing import Any

from kernel_assistant.session.client import Client
from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.commands.arguments import text_of
from kernel_assistant_lsp.context import Context


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """`{"job", "state"}`: "running" until it has stopped."""
    return await cancel(context, text_of(argument, "job"))


async def cancel(context: Context, job: str) -> dict[str, Any]:
    known = context.jobs.source(job)
    source, number = known if known is not None else (Client(context.settings(None)), job)
    state = await in_thread(lambda: source.cancel(number))
    return {"job": job, "state": state.value}
