"""Handles the request `textDocument/inlayHint`."""

from __future__ import annotations

from lsprotocol import types

from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.features import inlay


def register(context: Context) -> None:
    @context.server.feature(types.TEXT_DOCUMENT_INLAY_HINT)
    def inlay_hint(params: types.InlayHintParams) -> list[types.InlayHint]:
        snapshot = context.documents.opened(params.text_document.uri)
        if snapshot is None or not context.trusted or not context.configuration.is_on(snapshot.path, "inlay"):
            return []
        profiles = context.history.of(snapshot.path).profiles
        return [hint for profile in profiles.values() for hint in inlay.hints(snapshot, profile, params.range)]
