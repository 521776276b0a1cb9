"""Handles the request `textDocument/codeLens`."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from lsprotocol import types

from kernel_assistant.session.reporting.class_state import ClassState
from kernel_assistant.source.outline import Outline
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.encoded import EncodedResult
from kernel_assistant_lsp.jobs.view import EditorJob
from kernel_assistant_lsp.lens import encoded
from kernel_assistant_lsp.text.snapshot import Snapshot


def register(context: Context) -> None:
    latest = _Latest()

    @context.server.feature(types.TEXT_DOCUMENT_CODE_LENS, types.CodeLensOptions())
    async def code_lens(params: types.CodeLensParams) -> EncodedResult | list[types.CodeLens]:
        snapshot = context.documents.opened(params.text_document.uri)
        if snapshot is None or not context.trusted or not context.configuration.is_on(snapshot.path, "lens"):
            return []
        known = await context.first_outline(snapshot)
        await context.first_history(snapshot)
        path = snapshot.path
        return latest.answer(snapshot, known, context.states(path), context.jobs.running(path))


class _Latest:
    """The last answer, which is sent again if nothing has changed."""

    def __init__(self) -> None:
        self._of: tuple[Any, ...] = ()
        self._running: dict[str, EditorJob] = {}
        self._answer = EncodedResult("[]")

    def answer(
        self, snapshot: Snapshot, known: Outline, states: Mapping[str, ClassState], running: dict[str, EditorJob]
    ) -> EncodedResult:
        of = (snapshot, known, states)
        if not (self._of and all(map(operator.is_, of, self._of)) and running == self._running):
            self._of, self._running = of, running
            self._answer = EncodedResult(encoded(snapshot, known, states, running))
        return self._answer
