"""Requests about the start and end of the server: `initialize`, `initialized`, `shutdown`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from lsprotocol import types

from kernel_assistant_lsp.client import ClientCapabilities, abilities
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.sections import fetch_sections
from kernel_assistant_lsp.following.rounds import rounds
from kernel_assistant_lsp.outside import watch_outside
from kernel_assistant_lsp.protocol import Protocol
from kernel_assistant_lsp.settings import section_of


def register(context: Context) -> None:
    @context.server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        options = params.initialization_options if isinstance(params.initialization_options, Mapping) else {}
        context.abilities = abilities(params.capabilities, options)
        context.trusted = options.get("trusted") is not False
        context.configuration.set(section_of(options.get("settings")))
        encoding = context.server.workspace.position_encoding
        context.documents.encoding = str(getattr(encoding, "value", encoding) or "utf-16")

    @context.server.feature(types.INITIALIZED)
    async def initialized(params: types.InitializedParams) -> None:
        await fetch_sections(context)
        context.spawn(rounds(context))
        await watch_outside(context)

    @context.server.feature(types.SHUTDOWN)
    def shutdown(params: None) -> None:
        # A client that shuts down gets no more notifications. Its jobs stay with the session host.
        context.abilities = ClientCapabilities()
        cast("Protocol", context.server.protocol).cancel_others()
