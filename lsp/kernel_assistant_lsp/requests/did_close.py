"""Handles the notification `textDocument/didClose`."""

from __future__ import annotations

from lsprotocol import types

from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.text.documents import path_of


def register(context: Context) -> None:
    @context.server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        context.parses.forget(params.text_document.uri)
        context.undone_when_saved.pop(path_of(params.text_document.uri), None)
        nothing = types.PublishDiagnosticsParams(uri=params.text_document.uri, diagnostics=[])
        context.server.text_document_publish_diagnostics(nothing)
