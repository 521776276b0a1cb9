"""The texts of open documents; other files are read from disk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from lsprotocol.types import TextDocumentContentChangeEvent, TextDocumentContentChangePartial
from pygls.uris import from_fs_path, to_fs_path

from kernel_assistant.apply.text import decode_source
from kernel_assistant.errors import UsageError
from kernel_assistant_lsp.text.snapshot import Snapshot


class Documents:
    """Open documents by URI. Change this object in the event loop only; snapshots may be used in any thread."""

    def __init__(self) -> None:
        self.encoding = "utf-16"
        self._open: dict[str, Snapshot] = {}

    def open(self, uri: str, text: str, version: int | None, language: str = "") -> Snapshot:
        self._open[uri] = Snapshot(uri, path_of(uri), text, version, self.encoding, language)
        return self._open[uri]

    def change(
        self, uri: str, changes: Iterable[TextDocumentContentChangeEvent], version: int | None
    ) -> Snapshot | None:
        """Apply `changes` to a document. Return its new snapshot, None if the document is not open."""
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
        """Return the open document of a file, None if it is not open."""
        return next((snapshot for snapshot in self._open.values() if snapshot.path == path), None)

    def other_cells(self, snapshot: Snapshot) -> list[Snapshot]:
        """Return the other cells of the notebook of `snapshot`, in the order in which they were opened."""
        notebook, cell, _ = snapshot.uri.partition("#")
        if not cell or snapshot.is_file:
            return []
        return [one for one in self._open.values() if one.uri.startswith(f"{notebook}#") and one is not snapshot]

    def get(self, uri: str) -> Snapshot:
        """Return the open document, else the file on disk. Raises UsageError if there is neither."""
        snapshot = self._open.get(uri)
        return snapshot if snapshot is not None else from_disk(uri, self.encoding)


def changed(snapshot: Snapshot, changes: Iterable[TextDocumentContentChangeEvent], version: int | None) -> Snapshot:
    """Returns `snapshot` after all `changes`. The positions of each change refer to the text after the previous
    change."""
    for change in changes:
        if isinstance(change, TextDocumentContentChangePartial):
            start, end = sorted((snapshot.offset(change.range.start), snapshot.offset(change.range.end)))
            snapshot = snapshot.with_change(start, end, change.text)
        else:
            snapshot = replace(snapshot, text=change.text)
    return snapshot.of_version(version)


def from_disk(uri: str, encoding: str) -> Snapshot:
    """Reads the file at `uri`. `encoding` is the unit of positions (see `Snapshot`), not that of the file, which the
    file itself declares. Raises UsageError if the file cannot be read."""
    path = path_of(uri)
    if not is_file(uri):
        raise UsageError(f"{uri} is not a file on this machine", "save it first")
    try:
        text = decode_source(path.read_bytes(), path.name).text
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "check the path and its permissions") from error
    return Snapshot(uri, path, text, None, encoding)


def is_file(uri: str) -> bool:
    """Return whether `uri` refers to a file. Untitled buffers, old revisions and notebook cells do not."""
    return urlsplit(uri).scheme == "file"


def path_of(uri: str) -> Path:
    """Return the path of `uri`. For schemes other than `file`, this is the path part of the URI."""
    return Path(to_fs_path(uri) or urlsplit(uri).path or "untitled.py")


def uri_of(path: Path | str) -> str:
    return from_fs_path(str(path)) or f"file://{path}"
