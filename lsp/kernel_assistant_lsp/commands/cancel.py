"""Stop a job; its candidates are kept."""

from __future__ import annotations

from typing import Any

from kernel_assistant.session.client import Client
from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.arguments import text_of


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return `{"job", "state"}`; the state is "running" until the job has stopped."""
    return await cancel(context, text_of(argument, "job"))


async def cancel(context: Context, job: str) -> dict[str, Any]:
    known = context.jobs.source(job)
    source, number = known if known is not None else (Client(context.settings(None)), job)
    state = await in_thread(lambda: source.cancel(number))
    return {"job": job, "state": state.value}
