"""Run a confirmation of the candidate of a job that was cut short or whose gain was unclear."""

from __future__ import annotations

from typing import Any

from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.arguments import class_of, unconfirmed_job_of
from kernel_assistant_lsp.following.start import start


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return `{"job"}`; the new job is shown and applied like one that searched."""
    from kernel_assistant.session.kinds.confirm import prepare_confirm

    snapshot, _ = class_of(context, argument)
    settings = context.settings(snapshot.path)
    task, options = await in_thread(
        lambda: prepare_confirm(context.history.store, unconfirmed_job_of(context, argument))
    )
    return await start(context, task, options, settings)
