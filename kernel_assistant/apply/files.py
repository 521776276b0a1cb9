"""Reads, checks and atomically writes the user's files."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from kernel_assistant.errors import UsageError


def digest(data: bytes) -> str:
    """Returns the SHA-256 of `data` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def check_source(path: Path) -> None:
    """Raises UsageError unless `path` is a Python source file and no symbolic link, and the file and its folder are
    writable."""
    if path.suffix == ".ipynb":
        raise UsageError(f"{path.name} is a notebook", "move the class to a .py file")
    if not path.exists() and any(parent.is_file() for parent in path.parents):
        raise UsageError(f"{path} lies in an archive", "unpack it first")
    if path.is_symlink():
        raise UsageError(f"{path} is a symbolic link to {path.resolve()}", "name the file that it points to")
    if not path.is_file():
        raise UsageError(f"{path} is not a file", "name a Python file")
    if path.suffix != ".py":
        raise UsageError(f"{path.name} is not a .py file", "name a Python source file")
    # The mode counts as well: root can write everything, but a read-only file should not be written.
    if not os.access(path, os.W_OK) or not path.stat().st_mode & 0o222:
        raise UsageError(f"{path} is read-only", f"make it writable: chmod u+w {path.name}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"the folder {path.parent} cannot be written to", "change its permissions")


def read_bytes(path: Path) -> bytes:
    """Returns the content of a file. Raises UsageError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "check the path and its permissions") from error


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces or creates `path`: readers see either the old or the new content. The mode is kept; the owner, too, if
    this process is root.

    Raises UsageError if the file cannot be written; then `path` is unchanged.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", "check space and permissions") from error


def _write(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            _copy_permissions(path, file.fileno())
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _copy_permissions(path: Path, descriptor: int) -> None:
    try:
        old = path.stat()
    except FileNotFoundError:
        os.fchmod(descriptor, 0o666 & ~_umask())
        return
    if (old.st_uid, old.st_gid) != (os.getuid(), os.getgid()) and os.geteuid() == 0:
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _umask() -> int:
    """Returns the umask of this process from /proc, because no system call reads the umask without changing it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o022
