"""`initialized`: fetch settings, watch files, and find the jobs that are running."""

from __future__ import annotations

from lsprotocol import types

from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.sections import fetch_sections
from kernel_assistant_lsp.following.rounds import rounds
from kernel_assistant_lsp.outside import watch_outside


def register(context: Context) -> None:
    @context.server.feature(types.INITIALIZED)
    async def initialized(params: types.InitializedParams) -> None:
        await fetch_sections(context)
        context.spawn(rounds(context))
        await watch_outside(context)
