"""Handles the request `textDocument/codeAction`."""

from __future__ import annotations

from collections.abc import Sequence

from lsprotocol import types

from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.actions import KIND, actions
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.features import fixes, ghost
from kernel_assistant_lsp.text.snapshot import Snapshot


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
        offered = await _fixes(context, snapshot, params.context) if _wants(fixes.KIND, only) else []
        if not _wants(KIND, only):
            return offered
        return offered + actions(
            snapshot,
            params.range,
            context.outline(snapshot),
            context.states(snapshot.path),
            context.jobs.running(snapshot.path),
            context.abilities,
        )


async def _fixes(context: Context, snapshot: Snapshot, about: types.CodeActionContext) -> list[types.CodeAction]:
    versioned = context.abilities.versioned_edits
    offered = fixes.of_hints(snapshot, about.diagnostics, versioned=versioned)
    if ghost.LABEL in snapshot.text and ghost.in_workspace(snapshot.path):
        passed = await in_thread(lambda: _passed(context, snapshot.text))
        offered += fixes.of_labels(snapshot, passed=passed, versioned=versioned)
    return offered


def _passed(context: Context, text: str) -> bool:
    store = context.history.store
    return store.has_passed(text) or store.has_passed(ghost.without_labels(text))


def _wants(kind: types.CodeActionKind, only: Sequence[types.CodeActionKind | str] | None) -> bool:
    """Return whether `only` contains `kind` or a parent of it, or is None."""
    names = [str(getattr(one, "value", one)) for one in only or ()]
    return only is None or any(name in ("", kind.value) or kind.value.startswith(f"{name}.") for name in names)
