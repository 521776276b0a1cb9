"""Give a result up: the lens offers to optimize again. The job itself stays in the history."""

from __future__ import annotations

from typing import Any

from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.commands.arguments import class_of, job_of
from kernel_assistant_lsp.context import Context


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """`{"discarded": job}`."""
    snapshot, _ = class_of(context, argument)

    def discard() -> str:
        row = job_of(context, argument)
        context.history.store.discard(row.id)
        return row.id

    job = await in_thread(discard)
    context.history.forget_rows()
    context.look_soon(snapshot.uri, 0.0)
    return {"discarded": job}
