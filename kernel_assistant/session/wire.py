"""Messages between session host and client: JSON lines over a unix socket. An error keeps its exception class."""

from __future__ import annotations

import select
import socket
import time
from pathlib import Path
from typing import Any

import msgspec

from kernel_assistant import errors
from kernel_assistant.errors import HostError, InternalError, KernelAssistantError
from kernel_assistant.version import __version__

PROTOCOL = 1
#: Limit of a message. The largest contains a source file and perhaps a candidate, and is far smaller.
MAX_LINE = 64 << 20


#: The kind of `HostShuttingDown` on the socket, where a host and a client of other versions meet.
SHUTTING_DOWN = "HostEnding"


class HostShuttingDown(HostError):
    """The host is about to end; a client that tries again starts a new one."""


class SocketConnection:
    """One side of a socket. One thread may send while another receives."""

    def __init__(self, stream: socket.socket) -> None:
        self._socket = stream
        self._buffer = bytearray()

    def send(self, message: object) -> None:
        """Sends a message. Raises OSError if the peer is gone."""
        self.send_line(msgspec.json.encode(message))

    def send_line(self, line: bytes) -> None:
        self._socket.sendall(line + b"\n")

    def receive(self, timeout: float | None = None) -> dict[str, Any] | None:
        """Returns the next message, None if the peer has closed the connection. Raises TimeoutError after `timeout`
        seconds, OSError if the connection breaks, HostError if the message is not a JSON object."""
        line = self._line(timeout)
        if line is None:
            return None
        try:
            message = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise HostError(f"the peer sent something that is not JSON: {error}") from error
        if not isinstance(message, dict):
            raise HostError("the peer sent something that is not a message")
        return message

    def peer_gone(self) -> bool:
        """Whether the peer has closed the connection. Does not wait, and consumes no data."""
        readable, _, _ = select.select([self._socket], [], [], 0)
        try:
            return bool(readable) and not self._socket.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def close(self) -> None:
        self._socket.close()

    def _line(self, timeout: float | None) -> bytes | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_LINE:
                raise HostError("the peer sent a line without an end")
            self._socket.settimeout(None if deadline is None else max(0.001, deadline - time.monotonic()))
            part = self._socket.recv(1 << 16)
            if not part:
                return None
            self._buffer += part
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line


def hello() -> dict[str, Any]:
    """Returns the message that both sides send first: `hello` (number of the protocol), `version` and `build` (see
    `build_stamp`)."""
    return {"hello": PROTOCOL, "version": __version__, "build": build_stamp()}


def build_stamp() -> int:
    """Returns the newest modification time of our source files, in nanoseconds. It distinguishes hosts that run older
    code of the same version."""
    root = Path(__file__).resolve().parent.parent
    return max(path.stat().st_mtime_ns for path in root.rglob("*.py"))


def newer(mine: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether the first message `mine` comes from newer code than `theirs`; both are dicts as `hello` returns them."""
    return _age(mine) > _age(theirs)


def _age(greeting: dict[str, Any]) -> tuple[tuple[int, ...], int]:
    version = str(greeting.get("version", "0"))
    parts = tuple(int(part) if part.isdigit() else 0 for part in version.split("."))
    return parts, int(greeting.get("build", 0))


def error_to_wire(error: KernelAssistantError) -> dict[str, str]:
    # The other side knows only the classes of errors.py; a subclass from elsewhere is sent as its base class.
    kinds = (
        one for one in type(error).__mro__ if one is HostShuttingDown or getattr(errors, one.__name__, None) is one
    )
    kind = next(kinds)
    name = SHUTTING_DOWN if kind is HostShuttingDown else kind.__name__
    return {"kind": name, "cause": error.cause, "next_step": error.next_step, "detail": error.detail}


def error_from_wire(data: dict[str, Any]) -> KernelAssistantError:
    name = str(data.get("kind"))
    kind = HostShuttingDown if name == SHUTTING_DOWN else getattr(errors, name, InternalError)
    if not (isinstance(kind, type) and issubclass(kind, KernelAssistantError)):
        kind = InternalError
    error: KernelAssistantError = kind(
        str(data.get("cause", "the session host failed")),
        str(data.get("next_step", "")),
        detail=str(data.get("detail", "")),
    )
    return error
