"""This tool as files to send: its package, and its dependencies as they are installed here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import kernel_assistant
from kernel_assistant.remote.bootstrap import python_tag
from kernel_assistant.session.wire import build_stamp

#: Of `dependencies` in pyproject.toml, those that a session host loads; the others serve the command line.
NEEDED = ("msgspec", "nvidia-ml-py", "platformdirs", "psutil")


@dataclass(frozen=True)
class Bundle:
    """`name` changes with the content; `stamp` is the date of the newest file, by which hosts compare their age."""

    name: str
    stamp: int
    files: dict[str, bytes]


def own_bundle() -> Bundle:
    """The code of this tool as it is installed on this machine, without its dependencies."""
    root = Path(kernel_assistant.__file__).parent
    files = {
        f"kernel_assistant/{path.relative_to(root).as_posix()}": path.read_bytes()
        for path in sorted(root.rglob("*"))
        # Without the shipped model: nothing on the remote machine runs it, and it is four times as large as the rest.
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".gguf"
    }
    stamp = build_stamp()
    digest = hashlib.sha256(str(stamp).encode())
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return Bundle(f"{kernel_assistant.__version__}-{digest.hexdigest()[:16]}", stamp, files)


def dependencies(tag: str) -> dict[str, bytes] | None:
    """The files of the packages in `NEEDED` for a Python of `tag`; None if the local ones do not work there."""
    if tag != python_tag():
        return None
    try:
        return {name: content for package in NEEDED for name, content in _files(package)}
    except (metadata.PackageNotFoundError, OSError):
        return None


def requirements() -> list[str]:
    """The same packages for pip: the local version or a newer one, since the remote Python may be newer than ours."""
    return [f"{package}>={metadata.version(package)}" for package in NEEDED]


def _files(package: str) -> Iterator[tuple[str, bytes]]:
    for file in metadata.files(package) or ():
        if ".." in file.parts or "__pycache__" in file.parts or "tests" in file.parts:
            continue  # scripts beside the packages, and what no job needs
        yield file.as_posix(), Path(str(file.locate())).read_bytes()
