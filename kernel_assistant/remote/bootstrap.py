"""The first program on a remote machine: its text is sent to the remote Python; it reports the machine's facts and
stores the files that it receives.

Uses the standard library only, and of this package `worker/frames.py`, which is sent along. It reads requests from
stdin and writes answers to stdout (frames of `worker/frames.py`) until its input ends; its client is
`remote/install.py`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel_assistant.worker.frames import read_frame, write_frame

#: Free space that is required besides what is sent: jobs write into it.
_SPARE_BYTES = 256 << 20
_UNUSED_SECONDS = 30 * 24 * 3600.0
_PIP_SECONDS = 600.0

Answer = dict[str, Any]
Blobs = tuple[bytes, ...]


class BootstrapRefused(Exception):
    """Raised if the remote machine cannot carry out a request. `args` are the kind of failure (see `install.py`) and
    one line that explains it."""


class RemoteFolders:
    """The folder with all files of this tool on the remote machine. Each public method is one operation of the
    protocol; the client names it in a request."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(os.path.expanduser(folder)).absolute()

    def hello(self, tool: str) -> Answer:
        """Returns facts of the machine, and whether the tool named `tool` is installed. Creates the folders, and
        deletes files that were not used for 30 days."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for part in ("tool", "projects", "blobs", "home"):
            (self.folder / part).mkdir(exist_ok=True, mode=0o700)
        here = self._tool(tool)
        if here.is_dir():
            os.utime(here)
        self._forget_unused(here)
        return {
            "folder": str(self.folder),
            "python": sys.executable,
            "version": platform.python_version(),
            "tag": python_tag(),
            "has_tool": here.is_dir(),
            "lib": str(here / "lib"),
        }

    def tool(self, name: str, files: list[str], stamp: int, requirements: list[str], blobs: Blobs) -> Answer:
        """Installs the tool: writes its `files`, whose contents are `blobs`, and installs the packages `requirements`
        with pip. `stamp` becomes the files' modification time, in ns."""
        final = self._tool(name)
        draft = self._draft(sum(map(len, blobs)))
        try:
            lib = draft / "lib"
            for file, content in zip(files, blobs, strict=True):
                _write(lib, file, content)
                # One date for all files: hosts with different code differ in the date of the newest file.
                os.utime(lib / file, ns=(stamp, stamp))
            if requirements:
                _pip(lib, requirements)
            _try(lib)
            os.chmod(draft, 0o700)
            _move(draft, final)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return {}

    def put(self, blobs: Blobs) -> Answer:
        """Stores contents of files. The name of a stored file is the SHA-256 of its content."""
        self._room(sum(map(len, blobs)))
        for content in blobs:
            path = self._blob(hashlib.sha256(content).hexdigest())
            path.parent.mkdir(exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as draft:
                draft.write(content)
            os.replace(draft.name, path)
        return {}

    def tree(self, project: str, name: str, files: dict[str, str]) -> Answer:
        """Creates a folder with `files` (relative name → SHA-256 of a stored content). Returns `root`, the path of this
        folder, and `missing`, the hashes of contents that are not stored; if there are any, the folder is not
        created."""
        final = self.folder / "projects" / project / name
        if final.is_dir():
            os.utime(final)
            return {"root": str(final), "missing": []}
        contents = {digest: self._content(digest) for digest in set(files.values())}
        missing = [digest for digest, content in contents.items() if content is None]
        if missing:
            return {"root": str(final), "missing": sorted(missing)}
        draft = self._draft(0)
        try:
            for file, digest in files.items():
                _write(draft, file, contents[digest] or b"")
            final.parent.mkdir(exist_ok=True, mode=0o700)
            os.chmod(draft, 0o700)
            _move(draft, final)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return {"root": str(final), "missing": []}

    def _tool(self, name: str) -> Path:
        return self.folder / "tool" / f"{name}-{python_tag()}"

    def _blob(self, digest: str) -> Path:
        return self.folder / "blobs" / digest[:2] / digest

    def _content(self, digest: str) -> bytes | None:
        path = self._blob(digest)
        try:
            content = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return content if hashlib.sha256(content).hexdigest() == digest else None

    def _draft(self, size: int) -> Path:
        self._room(size)
        return Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder))

    def _room(self, size: int) -> None:
        free = shutil.disk_usage(self.folder).free
        if free < size + _SPARE_BYTES:
            raise BootstrapRefused("no_space", f"{free >> 20} MiB are free in {self.folder}")

    def _forget_unused(self, tool: Path) -> None:
        oldest = time.time() - _UNUSED_SECONDS
        ours = [path for part in ("tool/*", "projects/*/*", "blobs/*/*", ".new-*") for path in self.folder.glob(part)]
        for path in (path for path in ours if path != tool):
            try:
                if path.stat().st_mtime < oldest:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            except OSError:
                continue  # another client was quicker


def python_tag() -> str:
    """Returns a text that is equal for two Pythons if each can use the other's compiled packages. It names the version
    of Python, the system, the processor and the C library."""
    return "-".join((sys.implementation.cache_tag, sysconfig.get_platform(), platform.libc_ver()[0] or "libc"))


def _write(folder: Path, name: str, content: bytes) -> None:
    path = folder / name
    if os.path.isabs(name) or ".." in Path(name).parts:
        raise BootstrapRefused("bad_request", f"{name!r} leads out of its folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _move(draft: Path, final: Path) -> None:
    try:
        draft.rename(final)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        # Another client has put the same there in the meantime.


def _pip(lib: Path, requirements: list[str]) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    try:
        done = subprocess.run(
            [*command, "--target", str(lib), *requirements],
            capture_output=True,
            text=True,
            timeout=_PIP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BootstrapRefused("dependencies", "pip took longer than ten minutes") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["pip failed"]
        errors = [line for line in lines if "error" in line.lower()]
        raise BootstrapRefused("dependencies", (errors or lines)[-1].strip().removeprefix("ERROR: "))


def _try(lib: Path) -> None:
    command = [sys.executable, "-c", "import msgspec, platformdirs, psutil, pynvml, kernel_assistant.session.host"]
    done = subprocess.run(command, cwd=lib, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it does not say why"]
        raise BootstrapRefused("does_not_load", lines[-1])


def _answer(folders: RemoteFolders | None, message: Answer, blobs: Blobs) -> tuple[RemoteFolders, Answer]:
    operation, params = message["op"], message["params"]
    if folders is None:
        folders = RemoteFolders(params.pop("folder"))
    if operation in ("tool", "put"):
        params["blobs"] = blobs
    methods: dict[str, Callable[..., Answer]] = {
        "hello": folders.hello,
        "tool": folders.tool,
        "put": folders.put,
        "tree": folders.tree,
    }
    try:
        return folders, {"result": methods[operation](**params)}
    except BootstrapRefused as error:
        return folders, {"error": {"kind": error.args[0], "message": error.args[1]}}
    except OSError as error:
        kind = "no_space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "not_writable"
        where = error.filename or folders.folder
        return folders, {"error": {"kind": kind, "message": f"{where}: {error.strerror}"}}


def main() -> None:
    """Answers requests (frames of stdin) until the client disconnects."""
    folders: RemoteFolders | None = None
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        folders, answer = _answer(folders, *frame)
        write_frame(sys.stdout.buffer, answer)
