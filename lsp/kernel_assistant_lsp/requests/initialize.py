"""`initialize`: reads the capabilities of the client, and whether the workspace is trusted."""

from __future__ import annotations

from collections.abc import Mapping

from lsprotocol import types

from kernel_assistant_lsp.client import abilities
from kernel_assistant_lsp.context import Context
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
