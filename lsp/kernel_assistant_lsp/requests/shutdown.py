"""`shutdown`: jobs stay with the session host; there is nothing to save."""

from __future__ import annotations

from typing import cast

from lsprotocol import types

from kernel_assistant_lsp.client import ClientCapabilities
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.protocol import Protocol


def register(context: Context) -> None:
    @context.server.feature(types.SHUTDOWN)
    def shutdown(params: None) -> None:
        # A client that shuts down gets no more notifications.
        context.abilities = ClientCapabilities()
        cast("Protocol", context.server.protocol).cancel_others()
