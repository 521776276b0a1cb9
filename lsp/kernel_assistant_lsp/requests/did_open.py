"""Handles the notification `textDocument/didOpen`."""

from __future__ import annotations

from lsprotocol import types

from kernel_assistant_lsp.context import Context


def register(context: Context) -> None:
    @context.server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        context.look_soon(params.text_document.uri, 0.0)
