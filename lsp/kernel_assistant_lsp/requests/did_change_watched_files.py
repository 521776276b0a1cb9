"""Handles the notification `workspace/didChangeWatchedFiles`."""

from __future__ import annotations

from lsprotocol import types

from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.outside import changed_outside
from kernel_assistant_lsp.text.documents import path_of


def register(context: Context) -> None:
    @context.server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def did_change_watched_files(params: types.DidChangeWatchedFilesParams) -> None:
        changed_outside(context, [path_of(change.uri) for change in params.changes])
