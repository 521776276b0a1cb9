"""`window/workDoneProgress/cancel`: cancels the job of a progress display."""

from __future__ import annotations

from lsprotocol import types

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant_lsp.commands.cancel import cancel
from kernel_assistant_lsp.context import Context


def register(context: Context) -> None:
    @context.server.feature(types.WINDOW_WORK_DONE_PROGRESS_CANCEL)
    async def work_done_cancel(params: types.WorkDoneProgressCancelParams) -> None:
        job = context.work_done.job_of(params.token)
        if job is None:
            return
        try:
            await cancel(context, job)
        except KernelAssistantError as error:
            context.tell(f"{error.cause}: {error.next_step}", types.MessageType.Error)
