"""`textDocument/codeLens`."""

from __future__ import annotations

from lsprotocol import types

from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.lens import lenses


def register(context: Context) -> None:
    @context.server.feature(types.TEXT_DOCUMENT_CODE_LENS, types.CodeLensOptions())
    def code_lens(params: types.CodeLensParams) -> list[types.CodeLens]:
        snapshot = context.documents.opened(params.text_document.uri)
        if snapshot is None or not context.trusted or not context.configuration.is_on(snapshot.path, "lens"):
            return []
        path = snapshot.path
        return lenses(snapshot, context.classes(snapshot), context.history.of(path).states, context.jobs.running(path))
