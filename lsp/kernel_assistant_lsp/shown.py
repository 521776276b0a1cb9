"""Texts that a command answers with, opened by clients that show nothing of their own."""

from __future__ import annotations

from pathlib import Path

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from kernel_assistant.errors import StoreError, boundary
from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.documents import uri_of

_FOLDER = "shown"


def show_text(context: Context, name: str, text: str) -> None:
    """As file `name` in the state folder, when the command has its answer; where the client opens no files, it is told
    the path. VS Code's extension, which has pages of its own, gets the answer alone."""
    if not context.abilities.job_events:
        context.spawn(_show(context, context.settings(None).state_dir / _FOLDER / name, text))


async def _show(context: Context, path: Path, text: str) -> None:
    def write() -> None:
        with boundary(StoreError, f"cannot write {path}"):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_text(text, encoding="utf-8")

    try:
        await in_thread(write)
    except StoreError as error:
        context.tell(error.cause, types.MessageType.Error)
        return
    if not (context.abilities.shows_documents and await _opened(context, uri_of(path))):
        context.tell(f"written to {path}")


async def _opened(context: Context, uri: str) -> bool:
    try:
        answer = await context.server.window_show_document_async(types.ShowDocumentParams(uri=uri, take_focus=True))
    except JsonRpcException:
        return False
    return answer.success
