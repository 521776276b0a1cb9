"""Stores the files of one class in a package: all texts in CLASS.txt, one after the other, all binaries in the archive
CLASS.kernels.

The files have names such as `plan.json`, `sources/gate.cu`, `kernels.sm_90.cubin`. If kernels exist for module
instances of other sizes too, their files have a prefix `size_…/`. Older packages keep the files in a folder CLASS,
which is read as well. Standard library only."""

from __future__ import annotations

import io
import itertools
import os
import zipfile
import zlib
from collections.abc import Iterator

TEXTS, ARCHIVE = ".txt", ".kernels"
BINARY_SUFFIXES = (".so", ".cubin")
#: Prefix of the names of files for instances of another size.
SIZE = "size_"
_NO_END = b"\\ No newline at end of file"
#: Errors, besides OSError, of reading an archive that was cut off or changed.
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, ValueError)


class Parts:
    """Reads the files of the class `name` in the folder `package`. Methods raise OSError for a missing or damaged file,
    and ValueError for texts that were cut off."""

    def __init__(self, package: str, name: str) -> None:
        self.package, self.name = package, name
        self._folder = os.path.join(package, name)
        self._texts: dict[str, bytes] | None = None

    def names(self) -> list[str]:
        """Returns the names of all files, sorted."""
        return sorted({*self._own(), *self._packed(), *self._archived()})

    def read(self, name: str) -> bytes:
        path = self.path(name)
        if path:
            with open(path, "rb") as file:
                return file.read()
        texts = self._packed()
        return texts[name] if name in texts else self._unpacked(name)

    def path(self, name: str) -> str:
        """Returns the path of a file that is stored by itself; "" for a file inside CLASS.txt or CLASS.kernels."""
        path = os.path.join(self._folder, name)
        return path if os.path.isfile(path) else ""

    def holder(self, name: str) -> str:
        """Returns the path of the file that contains the binary `name`: the binary itself, or the archive."""
        return self.path(name) or self._folder + ARCHIVE

    def _own(self) -> Iterator[str]:
        for folder, _, names in os.walk(self._folder):
            for name in names:
                yield os.path.relpath(os.path.join(folder, name), self._folder).replace(os.sep, "/")

    def _packed(self) -> dict[str, bytes]:
        if self._texts is None:
            path = self._folder + TEXTS
            self._texts = {}
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    self._texts = unpack_texts(file.read(), os.path.basename(path))
        return self._texts

    def _archived(self) -> list[str]:
        path = self._folder + ARCHIVE
        if not os.path.isfile(path):
            return []
        try:
            with zipfile.ZipFile(path) as archive:
                return archive.namelist()
        except _DAMAGED as error:
            raise OSError(f"{os.path.basename(path)} is damaged: {error}") from error

    def _unpacked(self, name: str) -> bytes:
        path = self._folder + ARCHIVE
        if name not in self._archived():
            raise FileNotFoundError(f"{os.path.basename(self.package)} lacks {name} of {self.name}")
        try:
            with zipfile.ZipFile(path) as archive:
                return archive.read(name)
        except _DAMAGED as error:
            raise OSError(f"{name} in {os.path.basename(path)} is damaged: {error}") from error


def sizes_of(parts: Parts) -> list[str]:
    """Returns the prefixes of the class's file names, one for each size of module instances that has kernels. The first
    one is "", for the main size; the others are sorted."""
    names = parts.names()
    inner = {name.partition("/")[0] + "/" for name in names if name.startswith(SIZE)}
    return ["", *sorted(size for size in inner if f"{size}provenance.json" in names)]


def pack_texts(parts: dict[str, bytes]) -> bytes:
    """Joins texts, given by name, into one. Each text follows a line with a mark and its name, and the mark alone ends
    the whole; no line of the texts begins with the mark."""
    lines = [line for text in parts.values() for line in text.split(b"\n")]
    mark = b"=" * 10
    while any(line.startswith(mark) for line in lines):
        mark += b"="
    packed = b"".join(mark + b" " + name.encode() + b"\n" + _ended(text) for name, text in parts.items())
    return packed + mark + b"\n"


def unpack_texts(data: bytes, name: str) -> dict[str, bytes]:
    """Splits what `pack_texts` has joined into texts by name, also if line ends were converted since. `name` is for the
    error message. Raises ValueError if `data` was cut off."""
    lines = data.split(b"\n")
    mark = lines[0].partition(b" ")[0]
    if not mark or len(lines) < 2 or lines[-2].strip() != mark or lines[-1]:
        raise ValueError(f"{name} is cut off")
    starts = [number for number, line in enumerate(lines) if line.startswith(mark)]
    return {
        lines[start].partition(b" ")[2].strip().decode(): _unended(lines[start + 1 : end])
        for start, end in itertools.pairwise(starts)
    }


def pack_binaries(parts: dict[str, bytes]) -> bytes:
    """Returns a zip archive of binaries, given by name. Its bytes depend on the binaries only, not on the time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(parts):
            archive.writestr(zipfile.ZipInfo(name), parts[name], zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _ended(text: bytes) -> bytes:
    return text if not text or text.endswith(b"\n") else text + b"\n" + _NO_END + b"\n"


def _unended(lines: list[bytes]) -> bytes:
    if lines and lines[-1].strip() == _NO_END:
        return b"\n".join(lines[:-1])
    return b"".join(line + b"\n" for line in lines)
