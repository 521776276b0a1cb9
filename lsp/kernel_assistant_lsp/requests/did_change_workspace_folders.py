"""`workspace/didChangeWorkspaceFolders`: each folder has settings of its own."""

from __future__ import annotations

from lsprotocol import types

from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.sections import fetch_sections


def register(context: Context) -> None:
    @context.server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    async def did_change_workspace_folders(params: types.DidChangeWorkspaceFoldersParams) -> None:
        await fetch_sections(context)
