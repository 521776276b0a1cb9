"""The local side of `bootstrap.py`. It sends the files that the remote machine lacks: first this tool with its
dependencies as they are installed here, then the files of a module."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import kernel_assistant
from kernel_assistant.errors import InternalError, KernelAssistantError, MissingError
from kernel_assistant.remote.bootstrap import python_tag
from kernel_assistant.remote.closure import SourceClosure
from kernel_assistant.remote.ssh import NO_PYTHON, Ssh
from kernel_assistant.session.wire import build_stamp
from kernel_assistant.worker import frames

_OURS = f"{sys.version_info.major}.{sys.version_info.minor}"
_CHECK = "import sys; sys.exit(sys.version_info < (3, 11))"
#: Runs the text that comes first on stdin, with `frames.py` as the module that it imports.
_LOADER = (
    "import sys, json, types; given = json.loads(sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))); "
    'name = "kernel_assistant.worker.frames"; sys.modules[name] = types.ModuleType(name); '
    'exec(given["frames"], sys.modules[name].__dict__); own = {"__name__": "bootstrap"}; '
    'exec(given["bootstrap"], own); own["main"]()'
)
#: Arguments: check, loader, the interpreter that the user named or nothing.
_FIND_PYTHON = (
    'case "$3" in "~/"*) set -- "$1" "$2" "$HOME/${3#??}";; esac; '
    'for p in "$3" "$3/bin/python" python3 python3.14 python3.13 python3.12 python3.11 '
    '"$HOME/.local/bin/python3"; do '
    'if command -v "$p" >/dev/null 2>&1 && "$p" -I -c "$1" 2>/dev/null; then exec "$p" -I -c "$2"; fi; done; '
    f"exit {NO_PYTHON}"
)
#: The `dependencies` in pyproject.toml that a session host loads; only the command line uses the others.
NEEDED = ("msgspec", "nvidia-ml-py", "platformdirs", "psutil")


@dataclass(frozen=True)
class RemoteInstallation:
    """This tool as it is installed on the remote machine: `folder` has all our files there, `lib` the Python packages,
    `python` is the interpreter. `sent_bytes` is the number of bytes that were sent to install it."""

    folder: str
    python: str
    lib: str
    sent_bytes: int


@dataclass(frozen=True)
class ShippedModule:
    """The files of a module on the remote machine: their folder `root`, and how many files and bytes were sent."""

    root: str
    files: int
    bytes: int


class Installer:
    """A connection to `bootstrap.py`, as a context manager. Entering it installs this tool. Raises MissingError,
    which names the machine, if the machine lacks something that is needed.
    """

    def __init__(self, ssh: Ssh, folder: str, python: str) -> None:
        self._ssh, self._folder, self._python = ssh, folder, python

    def __enter__(self) -> Self:
        argv = ("sh", "-c", _FIND_PYTHON, "sh", _CHECK, _LOADER, self._python)
        self._channel = self._ssh.open(*argv)
        try:
            self._send_programs()
            self.installed = self._install()
        except BaseException:
            self._channel.close()
            raise
        return self

    def __exit__(self, *ended: object) -> None:
        self._channel.close()

    def ship(self, closure: SourceClosure) -> ShippedModule:
        """Puts the files of `closure` on the remote machine and returns where they are. Only contents that the machine
        lacks are sent."""
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in closure.files.items()}
        contents = {digests[name]: content for name, content in closure.files.items()}
        state = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:16]
        params = {"project": _project_name(closure.root), "name": state, "files": digests}
        answer = self._ask("tree", params)
        missing = {str(digest): contents[digest] for digest in answer["missing"]}
        if missing:
            self._ask("put", {}, tuple(missing.values()))
            answer = self._ask("tree", params)
        if answer["missing"]:
            raise InternalError(f"{self._ssh.name}: files that were sent are not there", "try again")
        count = sum(digest in missing for digest in digests.values())
        return ShippedModule(str(answer["root"]), count, sum(map(len, missing.values())))

    def _send_programs(self) -> None:
        programs = {
            "frames": Path(frames.__file__).read_text(encoding="utf-8"),
            "bootstrap": Path(__file__).with_name("bootstrap.py").read_text(encoding="utf-8"),
        }
        text = json.dumps(programs).encode()
        try:
            self._channel.stream.sendall(b"%d\n" % len(text) + text)
        except OSError as error:
            raise self._channel.failure() from error

    def _install(self) -> RemoteInstallation:
        bundle = own_bundle()
        facts = self._ask("hello", {"folder": self._folder, "tool": bundle.name})
        sent = 0
        if not facts["has_tool"]:
            params = {"name": bundle.name, "stamp": bundle.stamp}
            sent = self._send_tool(params, bundle.files, str(facts["tag"]))
        return RemoteInstallation(str(facts["folder"]), str(facts["python"]), str(facts["lib"]), sent)

    def _send_tool(self, params: dict[str, Any], files: dict[str, bytes], tag: str) -> int:
        """Sends the tool and returns the number of bytes sent. Our dependencies are sent with it if they can be loaded
        on the remote machine; otherwise pip installs them there."""
        copied = dependencies(tag)
        if copied is not None:
            everything = {**copied, **files}
            request = {**params, "files": list(everything), "requirements": []}
            if self._ask("tool", request, tuple(everything.values()), accept="does_not_load") is not None:
                return sum(map(len, everything.values()))
        request = {**params, "files": list(files), "requirements": requirements()}
        self._ask("tool", request, tuple(files.values()))
        return sum(map(len, files.values()))

    def _ask(self, operation: str, params: dict[str, Any], blobs: tuple[bytes, ...] = (), *, accept: str = "") -> Any:
        """Sends one operation and returns the answer; returns None if the remote machine refuses the operation with the
        kind `accept`. Raises an error for other refusals."""
        answer, _ = self._channel.ask({"op": operation, "params": params}, blobs)
        refusal = answer.get("error")
        if refusal is None:
            return answer["result"]
        if refusal["kind"] == accept:
            return None
        raise self._refused(str(refusal["kind"]), str(refusal["message"]))

    def _refused(self, kind: str, message: str) -> KernelAssistantError:
        next_steps = {
            "no_space": "free some there, or name a folder on another disk: --remote-dir DIR",
            "not_writable": "make it writable there, or name another folder: --remote-dir DIR",
            "dependencies": f"give that Python pip and an index, or name one of {_OURS} as here: --remote-python PATH",
            "does_not_load": "name another Python there: --remote-python PATH",
        }
        if kind not in next_steps:
            return InternalError(f"{self._ssh.name}: {message}", "please report this")
        what = {"dependencies": "what this tool needs cannot be installed there: "}.get(kind, "")
        return MissingError(f"{self._ssh.name}: {what}{message}", next_steps[kind])


def _project_name(root: Path) -> str:
    """Returns a readable name for the project in the folder `root`. The name has a hash of the path, so that folders of
    the same name differ."""
    plain = "".join(c for c in root.name if c.isalnum() or c in "-_") or "project"
    return f"{plain}-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Bundle:
    """The files of this tool. `name` changes with their content; `stamp` is the date of the newest file, which
    session hosts compare to find the newer one."""

    name: str
    stamp: int
    files: dict[str, bytes]


def own_bundle() -> Bundle:
    """Returns the code of this tool as it is installed on this machine, without its dependencies."""
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
    """Returns path → content of the files of the packages `NEEDED`. Returns None if they are not found here, or if
    `tag`, the tag of the remote Python, differs from ours: then compiled packages of this machine do not work there."""
    if tag != python_tag():
        return None
    try:
        return {name: content for package in NEEDED for name, content in _files(package)}
    except (metadata.PackageNotFoundError, OSError):
        return None


def requirements() -> list[str]:
    """Returns the packages `NEEDED` in the form for pip: the version of this machine or a newer one, because the remote
    Python may be newer than ours."""
    return [f"{package}>={metadata.version(package)}" for package in NEEDED]


def _files(package: str) -> Iterator[tuple[str, bytes]]:
    for file in metadata.files(package) or ():
        if ".." in file.parts or "__pycache__" in file.parts or "tests" in file.parts:
            continue  # scripts beside the packages, and what no job needs
        yield file.as_posix(), Path(str(file.locate())).read_bytes()
