"""`textDocument/codeAction`."""

from __future__ import annotations

from collections.abc import Sequence

from lsprotocol import types

from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.actions import KIND, actions
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.features import fixes, ghost
from kernel_assistant_lsp.snapshot import Snapshot


def register(context: Context) -> None:
    @context.server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=[KIND, fixes.KIND], resolve_provider=True),
    )
    async def code_action(params: types.CodeActionParams) -> list[types.CodeAction]:
        snapshot = context.documents.opened(params.text_document.uri)
        only = params.context.only
        if snapshot is None or not context.trusted:
            return []
        found = await _fixes(context, snapshot, params.context) if _wants(fixes.KIND, only) else []
        if not _wants(KIND, only):
            return found
        return found + actions(
            snapshot,
            params.range,
            context.classes(snapshot),
            context.history.of(snapshot.path).states,
            context.jobs.running(snapshot.path),
            context.abilities,
        )


async def _fixes(context: Context, snapshot: Snapshot, about: types.CodeActionContext) -> list[types.CodeAction]:
    versioned = context.abilities.versioned_edits
    found = fixes.of_hints(snapshot, about.diagnostics, versioned=versioned)
    if ghost.LABEL in snapshot.text and ghost.in_workspace(snapshot.path):
        passed = await in_thread(lambda: _passed(context, snapshot.text))
        found += fixes.of_labels(snapshot, passed=passed, versioned=versioned)
    return found


def _passed(context: Context, text: str) -> bool:
    store = context.history.store
    return store.has_passed(text) or store.has_passed(ghost.without_labels(text))


def _wants(kind: types.CodeActionKind, only: Sequence[types.CodeActionKind | str] | None) -> bool:
    """Whether one of `only` is `kind` or one above it; no list wants all."""
    names = [str(getattr(one, "value", one)) for one in only or ()]
    return only is None or any(name in ("", kind.value) or kind.value.startswith(f"{name}.") for name in names)
