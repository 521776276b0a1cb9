"""Handles the notification `textDocument/didChange`."""

from __future__ import annotations

from lsprotocol import types

from kernel_assistant_lsp.context import Context


def register(context: Context) -> None:
    @context.server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        context.look_soon(params.text_document.uri)
