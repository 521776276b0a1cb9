"""Answers `initialize` before the protocol's types are imported. Uses the standard library only.

Importing the types takes longer than the rest of the start; with an early answer the editor opens its documents
meanwhile.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO

_LENGTH = re.compile(rb"Content-Length[ \t]*:[ \t]*(\d+)\s*$", re.IGNORECASE)
_ENCODINGS = ("utf-8", "utf-16", "utf-32")
#: What pygls derives from the registered features; tests/lsp/test_greeting.py compares both.
CAPABILITIES: dict[str, Any] = {
    "textDocumentSync": {"openClose": True, "change": 2, "save": True},
    "codeActionProvider": {"codeActionKinds": ["refactor.rewrite", "quickfix"], "resolveProvider": True},
    "codeLensProvider": {"resolveProvider": False},
    "hoverProvider": True,
    "inlayHintProvider": {"resolveProvider": False},
    "inlineCompletionProvider": {},
    "executeCommandProvider": {
        "commands": [
            f"kernelAssistant.{name}"
            for name in (
                *("optimize", "cancel", "apply", "undo", "discard", "verify", "confirm", "profile", "show", "scan"),
                *("ignore", "inputs", "jobs", "diff", "assembly", "classes", "kernels", "say", "transcript"),
            )
        ]
    },
    "workspace": {
        "workspaceFolders": {"supported": True, "changeNotifications": True},
        "fileOperations": {},
    },
}
#: The files before whose rename a client asks the server, if it supports that.
RENAMES: dict[str, Any] = {"filters": [{"pattern": {"glob": "**/*.py", "matches": "file"}, "scheme": "file"}]}


@dataclass(frozen=True)
class InitialRequest:
    """The first message of the client. `identity` is the id of the `initialize` request that was answered; None if the
    message is another one. `stdin` yields this message again and everything after it."""

    identity: int | str | None
    stdin: ReplayedStream


class ReplayedStream:
    """Yields the bytes `read`, then those of `stream`. Headers are converted to the form that pygls reads."""

    def __init__(self, read: bytes, stream: BinaryIO) -> None:
        self._read = BytesIO(read)
        self._stream = stream

    def readline(self, limit: int = -1) -> bytes:
        """Read a header line. Bytes before `Content-Length`, left by a body that is longer than announced, are
        dropped."""
        line = self._read.readline(limit) or self._stream.readline(limit)
        length = _LENGTH.search(line)
        return line if length is None else b"Content-Length: %s\r\n" % length[1]

    def read(self, count: int = -1) -> bytes:
        return self._read.read(count) or self._stream.read(count)


def greet(stdin: BinaryIO, stdout: BinaryIO, version: str) -> InitialRequest:
    """Waits for the client's first message, and answers it if it is an `initialize` request."""
    read, body = _first_message(stdin)
    identity = None
    try:
        message = json.loads(body)
        if message["method"] == "initialize" and isinstance(message["id"], (int, str)):
            identity = message["id"]
            _send(stdout, {"jsonrpc": "2.0", "id": identity, "result": answer(message["params"], version)})
    except (ValueError, KeyError, TypeError, AttributeError):
        identity = None  # the server itself reports the error
    return InitialRequest(identity, ReplayedStream(read, stdin))


def answer(params: dict[str, Any], version: str) -> dict[str, Any]:
    """Return the result of `initialize` for the client's `params`."""
    wanted = ((params["capabilities"].get("general") or {}).get("positionEncodings")) or ()
    encoding = next((one for one in wanted if one in _ENCODINGS), "utf-16")
    operations = (params["capabilities"].get("workspace") or {}).get("fileOperations") or {}
    known = {"willRename": RENAMES} if operations.get("willRename") else {}
    workspace = {**CAPABILITIES["workspace"], "fileOperations": known}
    return {
        "capabilities": {"positionEncoding": encoding, **CAPABILITIES, "workspace": workspace},
        "serverInfo": {"name": "kernel-assistant", "version": version},
    }


def _first_message(stdin: BinaryIO) -> tuple[bytes, bytes]:
    """Return all bytes of the first message, and its body. The body is empty if the stream ends before it."""
    read, length = b"", 0
    while line := stdin.readline():
        read += line
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            length = int(value)
        if not line.strip() and length:
            body = stdin.read(length)
            return read + body, body
    return read, b""


def _send(stdout: BinaryIO, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    stdout.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    stdout.flush()
