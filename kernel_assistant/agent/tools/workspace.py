"""The folder of files that a model works on in an episode.

The sandbox's shell may have made links, pipes or odd names here, and a model may ask for any path. So paths are opened
component by component without following links: no path leads out of the folder, blocks, or fills memory. Another
process of the same user that writes here is not guarded against.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MAX_FILE = 1 << 20
MAX_LISTED = 500
#: Folder of files for the model to read; never part of a candidate.
REFERENCE = "reference"


class PathRefused(Exception):
    """A path that does not exist or is not allowed; the text is sent to the model."""


@dataclass(frozen=True)
class Entry:
    """A file in the workspace; `size` is in bytes."""

    path: str
    size: int


class Workspace:
    """The text files in `folder`, which is created if it does not exist."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder

    def read(self, path: str) -> str:
        """Returns the text of a file. Raises PathRefused unless it is a plain UTF-8 file of at most 1 MiB."""
        with self._opened(path, os.O_RDONLY | os.O_NONBLOCK) as file:
            if os.fstat(file).st_size > MAX_FILE:
                raise PathRefused(f"{path} is larger than {MAX_FILE >> 20} MiB")
            content = _all(file)
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            raise PathRefused(f"{path} is not UTF-8 text") from None

    def write(self, path: str, text: str) -> None:
        """Writes a file, and creates its folders. Raises PathRefused if the path or the size is not allowed."""
        content = text.encode("utf-8", errors="replace")
        if len(content) > MAX_FILE:
            raise PathRefused(f"{path} would be larger than {MAX_FILE >> 20} MiB")
        if self._parts(path)[0] == REFERENCE:
            raise PathRefused(f"{REFERENCE}/ is for reading")
        with self._opened(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, make_folders=True) as file:
            os.ftruncate(file, 0)
            while content:
                content = content[os.write(file, content) :]

    def add_reference(self, name: str, text: str) -> None:
        """Adds a file that the model can read but not write; it never becomes part of a candidate."""
        path = self.folder / REFERENCE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")

    def files(self, below: str = ".") -> list[Entry]:
        """Returns the plain files in a folder, sorted by path, at most 500; follows no links. Raises PathRefused."""
        top = "" if below in ("", ".", "./") else "/".join(self._parts(below))
        with self._folder(self._parts(top) if top else []) as folder:
            entries = sorted(_walk(folder, f"{top}/" if top else ""), key=lambda entry: entry.path)
        return entries[:MAX_LISTED]

    def _parts(self, path: str) -> list[str]:
        if path.startswith("/"):
            raise PathRefused(f"{path!r}: paths are relative to the workspace")
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in parts or not parts or "\0" in path:
            raise PathRefused(f"{path!r} is not a path inside the workspace")
        return parts

    @contextmanager
    def _opened(self, path: str, flags: int, *, make_folders: bool = False) -> Iterator[int]:
        """Opens a plain file for the `with` block and yields its descriptor. Raises PathRefused."""
        *folders, name = self._parts(path)
        with self._folder(folders, make=make_folders) as folder:
            try:
                file = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
            except OSError as error:
                raise PathRefused(_why(path, error)) from error
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise PathRefused(f"{path} is not a plain file")
            yield file
        finally:
            os.close(file)

    @contextmanager
    def _folder(self, parts: list[str], *, make: bool = False) -> Iterator[int]:
        """Opens the folder with the path `parts` for the `with` block and yields its descriptor. Raises PathRefused."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        current = os.open(self.folder, flags)
        try:
            for part in parts:
                try:
                    if make:
                        _make(part, current)
                    below = os.open(part, flags, dir_fd=current)
                except OSError as error:
                    raise PathRefused(_why("/".join(parts), error)) from error
                os.close(current)
                current = below
            yield current
        finally:
            os.close(current)


def _make(name: str, folder: int) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
    except FileExistsError:
        pass  # already a folder; if it is something else, opening it fails


def _all(file: int) -> bytes:
    chunks = []
    while chunk := os.read(file, 1 << 16):
        chunks.append(chunk)
    return b"".join(chunks)


def _walk(folder: int, prefix: str) -> Iterator[Entry]:
    with os.scandir(folder) as entries:
        names = sorted(entries, key=lambda entry: entry.name)
    for entry in names:
        if entry.is_file(follow_symlinks=False):
            yield Entry(prefix + entry.name, entry.stat(follow_symlinks=False).st_size)
        elif entry.is_dir(follow_symlinks=False):
            below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            try:
                yield from _walk(below, f"{prefix}{entry.name}/")
            finally:
                os.close(below)


def _why(path: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{path} is not there"
    if isinstance(error, IsADirectoryError):
        return f"{path} is a folder"
    return f"{path} cannot be opened: {error.strerror}"
