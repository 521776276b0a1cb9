"""Opens the text of a command's answer in clients that have no view of their own for it."""

from __future__ import annotations

from pathlib import Path

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from kernel_assistant.errors import StoreError, boundary
from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.text.documents import uri_of

_FOLDER = "shown"


def show_text(context: Context, name: str, text: str) -> None:
    """Write `text` to file `name` in the state folder and have the client open the file, or show its path if the
    client cannot open files. Does nothing for the VS Code extension, which shows the answer itself."""
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
