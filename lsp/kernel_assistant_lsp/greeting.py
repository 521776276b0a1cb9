"""The answer to `initialize`, given before the protocol's types are loaded. Standard library only.

Loading them takes longer than everything else at the start; an editor that has its answer opens its documents.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO

_ENCODINGS = ("utf-8", "utf-16", "utf-32")
#: As pygls makes it of what is registered; tests/lsp/test_greeting.py holds one against the other.
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
                *("optimize", "cancel", "apply", "undo", "discard", "verify", "profile", "show", "scan", "ignore"),
                *("inputs", "jobs", "diff", "assembly"),
            )
        ]
    },
    "workspace": {
        "workspaceFolders": {"supported": True, "changeNotifications": True},
        "fileOperations": {},
    },
}


@dataclass(frozen=True)
class Greeted:
    """`identity` of the request that was answered, None where the first message was another one; `stdin` has it again,
    and everything behind it."""

    identity: int | str | None
    stdin: Replayed


class Replayed:
    """What was read already, then the stream itself."""

    def __init__(self, read: bytes, stream: BinaryIO) -> None:
        self._read = BytesIO(read)
        self._stream = stream

    def readline(self, limit: int = -1) -> bytes:
        return self._read.readline(limit) or self._stream.readline(limit)

    def read(self, count: int = -1) -> bytes:
        return self._read.read(count) or self._stream.read(count)


def greet(stdin: BinaryIO, stdout: BinaryIO, version: str) -> Greeted:
    """Wait for the first message and answer it if it is a request to initialize."""
    read, body = _first_message(stdin)
    identity = None
    try:
        message = json.loads(body)
        if message["method"] == "initialize" and isinstance(message["id"], (int, str)):
            identity = message["id"]
            _send(stdout, {"jsonrpc": "2.0", "id": identity, "result": answer(message["params"], version)})
    except (ValueError, KeyError, TypeError, AttributeError):
        identity = None  # the server proper says what is wrong with it
    return Greeted(identity, Replayed(read, stdin))


def answer(params: dict[str, Any], version: str) -> dict[str, Any]:
    """The result of `initialize` for what a client can do."""
    wanted = ((params["capabilities"].get("general") or {}).get("positionEncodings")) or ()
    encoding = next((one for one in wanted if one in _ENCODINGS), "utf-16")
    return {
        "capabilities": {"positionEncoding": encoding, **CAPABILITIES},
        "serverInfo": {"name": "kernel-assistant", "version": version},
    }


def _first_message(stdin: BinaryIO) -> tuple[bytes, bytes]:
    """Everything that was read, and of it the message's body; an end of the stream ends it."""
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
