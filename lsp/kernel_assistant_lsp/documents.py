"""What is open in the editor, as it was typed; anything else is read from disk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from lsprotocol.types import TextDocumentContentChangeEvent, TextDocumentContentChangePartial
from pygls.uris import from_fs_path, to_fs_path

from kernel_assistant.apply.text import decode_source
from kernel_assistant.errors import UsageError
from kernel_assistant_lsp.snapshot import Snapshot


class Documents:
    """Open documents by address. Changed in the event loop only; a snapshot may go anywhere."""

    def __init__(self) -> None:
        self.encoding = "utf-16"
        self._open: dict[str, Snapshot] = {}

    def open(self, uri: str, text: str, version: int | None) -> Snapshot:
        self._open[uri] = Snapshot(uri, path_of(uri), text, version, self.encoding)
        return self._open[uri]

    def change(
        self, uri: str, changes: Iterable[TextDocumentContentChangeEvent], version: int | None
    ) -> Snapshot | None:
        """The document after `changes`, None for one that is not open."""
        if uri not in self._open:
            return None
        self._open[uri] = changed(self._open[uri], changes, version)
        return self._open[uri]

    def close(self, uri: str) -> None:
        self._open.pop(uri, None)

    def opened(self, uri: str) -> Snapshot | None:
        return self._open.get(uri)

    def all(self) -> list[Snapshot]:
        return list(self._open.values())

    def of_path(self, path: Path) -> Snapshot | None:
        """The open document of a file."""
        return next((found for found in self._open.values() if found.path == path), None)

    def get(self, uri: str) -> Snapshot:
        """The open document, else the file. Raises UsageError where there is neither."""
        found = self._open.get(uri)
        return found if found is not None else from_disk(uri, self.encoding)


def changed(snapshot: Snapshot, changes: Iterable[TextDocumentContentChangeEvent], version: int | None) -> Snapshot:
    """`snapshot` after changes in their order; each one's positions are those of the text before it."""
    for change in changes:
        text = change.text
        if isinstance(change, TextDocumentContentChangePartial):
            start, end = snapshot.offset(change.range.start), snapshot.offset(change.range.end)
            text = snapshot.text[: min(start, end)] + change.text + snapshot.text[max(start, end) :]
        snapshot = replace(snapshot, text=text)
    return replace(snapshot, version=version)


def from_disk(uri: str, encoding: str) -> Snapshot:
    """The file at `uri`, in its own encoding. Raises UsageError where it cannot be read."""
    path = path_of(uri)
    if not is_file(uri):
        raise UsageError(f"{uri} is not a file on this machine", "save it first")
    try:
        text = decode_source(path.read_bytes(), path.name).text
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "check the path and its permissions") from error
    return Snapshot(uri, path, text, None, encoding)


def is_file(uri: str) -> bool:
    """Whether `uri` can be a file: not an untitled buffer, an old revision, a notebook's cell."""
    return urlsplit(uri).scheme == "file"


def path_of(uri: str) -> Path:
    """The file of `uri`; for other schemes what looks like its path."""
    return Path(to_fs_path(uri) or urlsplit(uri).path or "untitled.py")


def uri_of(path: Path | str) -> str:
    return from_fs_path(str(path)) or f"file://{path}"
