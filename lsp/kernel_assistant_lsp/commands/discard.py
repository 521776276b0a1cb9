"""Discard a result: the lens offers to optimize again. The job itself stays in the history."""

from __future__ import annotations

from typing import Any

from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.arguments import class_of, job_of


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return `{"discarded": job}`."""
    snapshot, _ = class_of(context, argument)

    def discard() -> str:
        row = job_of(context, argument)
        context.history.store.discard(row.id)
        return row.id

    job = await in_thread(discard)
    context.history.forget_rows()
    await context.look(snapshot.uri)
    return {"discarded": job}
