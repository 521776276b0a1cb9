"""Notifications about open documents: `didOpen`, `didChange`, `didSave`, `didClose`."""

from __future__ import annotations

import threading
from pathlib import Path

from lsprotocol import types

from kernel_assistant.apply.takeback import decorated_classes
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant_lsp.commands.edits import undo_on_disk
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.text.documents import from_disk, path_of

_REMOVING = threading.Lock()


def register(context: Context) -> None:
    @context.server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        context.look_soon(params.text_document.uri, 0.0)

    @context.server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        context.look_soon(params.text_document.uri)

    # Deletes the package of kernels of a file that was saved without them.
    @context.server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def did_save(params: types.DidSaveTextDocumentParams) -> None:
        uri = params.text_document.uri
        snapshot = context.documents.opened(uri)
        undone = set() if snapshot is None else context.undone_when_saved.pop(snapshot.path, set())
        if snapshot is not None and undone:
            await context.to_the_end(lambda: _remove(context, uri, snapshot.path, undone))
        context.look_soon(uri, 0.0)

    @context.server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        context.parses.forget(params.text_document.uri)
        context.undone_when_saved.pop(path_of(params.text_document.uri), None)
        nothing = types.PublishDiagnosticsParams(uri=params.text_document.uri, diagnostics=[])
        context.server.text_document_publish_diagnostics(nothing)


def _remove(context: Context, uri: str, path: Path, undone: set[str]) -> None:
    """Deletes the kernels of the classes `undone` from the package of a file that was saved without them. May run
    twice, if an editor saves and quits."""
    try:
        with _REMOVING:
            still = decorated_classes(from_disk(uri, "utf-16").text)
            for name in sorted(undone.difference(still)):
                undo_on_disk(context, path, name)
    except (KernelAssistantError, SyntaxError, ValueError):
        pass  # the package stays; `undo` on the command line reports the reason
