"""`shutdown`: jobs stay with the session host; there is nothing to save."""

from __future__ import annotations

from lsprotocol import types

from kernel_assistant_lsp.context import Context


def register(context: Context) -> None:
    @context.server.feature(types.SHUTDOWN)
    def shutdown(params: None) -> None:
        context.abilities = type(context.abilities)()
