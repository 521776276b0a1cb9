"""Handles the request `textDocument/hover`."""

from __future__ import annotations

from lsprotocol import types

from kernel_assistant_lsp.actions import innermost
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.features import hover as feature


def register(context: Context) -> None:
    @context.server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        snapshot = context.documents.opened(params.text_document.uri)
        if snapshot is None or not context.trusted:
            return None
        here = types.Range(params.position, params.position)
        around = innermost(snapshot, here, context.classes(snapshot))
        if around is None:
            return None
        known = context.history.of(snapshot.path)
        profile = known.profiles.get(around.name)
        return feature.at(snapshot, params.position, profile, known.rows, known.states.get(around.name))
