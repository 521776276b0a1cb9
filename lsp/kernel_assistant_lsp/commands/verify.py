"""Verify kernels again: those applied in the file, or the candidate of a job."""

from __future__ import annotations

from typing import Any

from kernel_assistant.session.reporting.check_report import ClassCheck
from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.arguments import class_of, job_of
from kernel_assistant_lsp.following.start import start


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return `{"job"}`, or `{"job": null, "status", "message", "nextStep"}` if the kernels are not used, which
    is known without a job."""
    from kernel_assistant.session.kinds.again import prepare_again

    snapshot, name = class_of(context, argument)
    settings = context.settings(snapshot.path)
    prepared = await in_thread(
        lambda: prepare_again(
            snapshot.path,
            name,
            settings,
            lambda: job_of(context, argument),
            applied="job" not in argument,
            projects=context.folders(),
        )
    )
    if isinstance(prepared, ClassCheck):
        verdict = {"status": prepared.status.value, "message": prepared.message, "nextStep": prepared.next_step}
        return {"job": None, **verdict}
    return await start(context, *prepared, settings)
