"""`textDocument/inlineCompletion`: a verified result where its class is edited, a model's words in CUDA files."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from lsprotocol import types

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobRow
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.features import ghost
from kernel_assistant_lsp.snapshot import Snapshot

_log = logging.getLogger(__name__)


def register(context: Context) -> None:
    def passed(text: str) -> bool:
        # In the thread that asks the model: the first look opens the store.
        return context.history.store.has_passed(text)

    @context.server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def inline_completion(params: types.InlineCompletionParams) -> list[types.InlineCompletionItem]:
        snapshot = context.documents.opened(params.text_document.uri)
        if snapshot is None or not context.trusted or not context.configuration.is_on(snapshot.path, "ghostText"):
            return []
        if snapshot.path.suffix == ".py":
            rows = context.history.of(snapshot.path).rows
            return await in_thread(lambda: _bodies(snapshot, params.position, rows))
        try:
            settings = context.settings(snapshot.path)
            if not (settings.endpoint or settings.model) or not ghost.in_workspace(snapshot.path):
                return []
            return await ghost.continue_cuda(snapshot, params.position, lambda: context.model.client(settings), passed)
        except KernelAssistantError as error:
            _log.warning("no suggestion: %s", error.cause)
            return []


def _bodies(snapshot: Snapshot, position: types.Position, rows: Iterable[JobRow]) -> list[types.InlineCompletionItem]:
    """The first one that fits."""
    return next((found for row in rows if (found := ghost.body(snapshot, position, row))), [])
