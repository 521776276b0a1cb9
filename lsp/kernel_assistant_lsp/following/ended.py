"""Updates the open documents of a file when one of its jobs ends."""

from __future__ import annotations

from pathlib import Path

from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.text.documents import uri_of


def ended(context: Context, path: Path) -> None:
    """Update the documents of `path` after a job for this file has ended."""
    context.look_soon(uri_of(path), 0.0)
    for snapshot in context.documents.all():
        if snapshot.path == path:
            context.look_soon(snapshot.uri, 0.0)
    context.refresh()
