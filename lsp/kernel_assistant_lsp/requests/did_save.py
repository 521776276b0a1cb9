"""`textDocument/didSave`: deletes the package of kernels of a file that was saved without them."""

from __future__ import annotations

import threading
from pathlib import Path

from lsprotocol import types

from kernel_assistant.apply.takeback import decorated_classes
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant_lsp.commands.undo import take_back
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.text.documents import from_disk

_REMOVING = threading.Lock()


def register(context: Context) -> None:
    @context.server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def did_save(params: types.DidSaveTextDocumentParams) -> None:
        uri = params.text_document.uri
        snapshot = context.documents.opened(uri)
        undone = set() if snapshot is None else context.undone_when_saved.pop(snapshot.path, set())
        if snapshot is not None and undone:
            await context.to_the_end(lambda: _remove(context, uri, snapshot.path, undone))
        context.look_soon(uri, 0.0)


def _remove(context: Context, uri: str, path: Path, undone: set[str]) -> None:
    """Delete the package of kernels of a saved file. This may run twice, if an editor saves and quits."""
    try:
        with _REMOVING:
            still = decorated_classes(from_disk(uri, "utf-16").text)
            for name in sorted(undone.difference(still)):
                take_back(context, path, name)
    except (KernelAssistantError, SyntaxError, ValueError):
        pass  # the package stays; `undo` on the command line reports the reason
