"""`textDocument/codeAction`."""

from __future__ import annotations

from lsprotocol import types

from kernel_assistant_lsp.actions import KIND, actions
from kernel_assistant_lsp.context import Context


def register(context: Context) -> None:
    @context.server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=[KIND], resolve_provider=True)
    )
    def code_action(params: types.CodeActionParams) -> list[types.CodeAction]:
        snapshot = context.documents.opened(params.text_document.uri)
        only = params.context.only
        if snapshot is None or not context.trusted or (only is not None and not any(map(_holds, only))):
            return []
        return actions(
            snapshot,
            params.range,
            context.classes(snapshot),
            context.history.of(snapshot.path).states,
            context.jobs.running(snapshot.path),
            context.abilities,
        )


def _holds(kind: types.CodeActionKind | str) -> bool:
    """Whether our kind is `kind` or one below it."""
    wanted, ours = getattr(kind, "value", kind), KIND.value
    return wanted == "" or ours == wanted or ours.startswith(f"{wanted}.")
