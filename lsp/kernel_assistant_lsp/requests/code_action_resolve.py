"""`codeAction/resolve`: fills in the edit of a chosen action."""

from __future__ import annotations

from collections.abc import Mapping

from lsprotocol import types

from kernel_assistant_lsp.actions import resolved
from kernel_assistant_lsp.context import Context


def register(context: Context) -> None:
    @context.server.feature(types.CODE_ACTION_RESOLVE)
    def code_action_resolve(action: types.CodeAction) -> types.CodeAction:
        data = action.data if isinstance(action.data, Mapping) else {}
        snapshot = context.documents.opened(str(data.get("uri")))
        if snapshot is None:
            return action
        versioned = context.abilities.versioned_edits
        return resolved(action, snapshot, context.classes(snapshot), versioned=versioned)
