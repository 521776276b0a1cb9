"""`workspace/didChangeConfiguration`: fetches the settings again, because the workspace may have become trusted."""

from __future__ import annotations

from lsprotocol import types

from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.sections import fetch_sections
from kernel_assistant_lsp.settings import section_of


def register(context: Context) -> None:
    @context.server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def did_change_configuration(params: types.DidChangeConfigurationParams) -> None:
        section = section_of(params.settings)
        if isinstance(section.get("trusted"), bool):
            context.trusted = section.pop("trusted")
        if section and not context.abilities.configuration:
            context.configuration.set(section)
        await fetch_sections(context)
        context.look_at_all()
