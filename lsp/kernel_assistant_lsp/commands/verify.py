"""Check kernels again: applied ones in their file, or the candidate of a job."""

from __future__ import annotations

from typing import Any

from kernel_assistant.session.check_report import ClassCheck
from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.commands.arguments import class_of, job_of
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.start import start


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """`{"job"}`; `{"job": null, "status", "message", "nextStep"}` where a look tells that the kernels are not used."""
    from kernel_assistant.session.again import prepare_again

    snapshot, name = class_of(context, argument)
    settings = context.settings(snapshot.path)
    prepared = await in_thread(
        lambda: prepare_again(
            snapshot.path, name, settings, lambda: job_of(context, argument), applied="job" not in argument
        )
    )
    if isinstance(prepared, ClassCheck):
        verdict = {"status": prepared.status.value, "message": prepared.message, "nextStep": prepared.next_step}
        return {"job": None, **verdict}
    return await start(context, *prepared, settings)
