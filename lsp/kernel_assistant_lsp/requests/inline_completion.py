"""`textDocument/inlineCompletion`: verified kernels above their class, a model's continuation in CUDA files."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from lsprotocol import types

from kernel_assistant.apply import is_installed
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobRow
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.features import ghost
from kernel_assistant_lsp.features.unsuggested import no_plan, say_why, tasks_alone
from kernel_assistant_lsp.text.snapshot import Snapshot

_log = logging.getLogger(__name__)


def register(context: Context) -> None:
    def passed(text: str) -> bool:
        # Runs in the thread that asks the model: the first access opens the store.
        return context.history.store.has_passed(text)

    @context.server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def inline_completion(params: types.InlineCompletionParams) -> list[types.InlineCompletionItem]:
        snapshot = context.documents.opened(params.text_document.uri)
        if snapshot is None or not context.trusted or not context.configuration.is_on(snapshot.path, "ghostText"):
            return []
        if snapshot.path.suffix == ".py":
            if not context.abilities.applies_edits or is_installed(snapshot.path):
                return []  # accepting it could not insert the import
            rows = context.history.of(snapshot.path).rows
            return await in_thread(lambda: _bodies(snapshot, params.position, rows))
        try:
            if not ghost.is_cuda(snapshot.path):
                return []
            settings = context.settings(snapshot.path)
            if not ghost.in_workspace(snapshot.path):
                raise no_plan()
            if not (settings.endpoint or settings.model):
                raise tasks_alone()
            return await ghost.continue_cuda(snapshot, params.position, lambda: context.model.client(settings), passed)
        except KernelAssistantError as error:
            _log.warning("no suggestion: %s", error.cause)
            say_why(context, error)
            return []


def _bodies(snapshot: Snapshot, position: types.Position, rows: Iterable[JobRow]) -> list[types.InlineCompletionItem]:
    """Return the completion of the first job that fits, [] if none does."""
    return next((items for row in rows if (items := ghost.body(snapshot, position, row))), [])
