"""Sends and receives messages between judge and runner over a Unix socket, with file descriptors. Standard library
only.

message := u32 length | UTF-8 JSON object, descriptors attached to the first byte

A request has a ticket, random text that its answer repeats; the greeting (the first message of each side) and `exit`
have none."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

MAX_MESSAGE = 64 << 20
MAX_DESCRIPTORS = 4
TICKET = "ticket"


class WireClosed(EOFError):
    """The peer has closed the connection, or sent bytes that are no message."""


def send(sock: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Sends one message with file descriptors. Raises OSError if the peer has closed the connection."""
    body = json.dumps(message, separators=(",", ":")).encode()
    data = struct.pack("<I", len(body)) + body
    sent = socket.send_fds(sock, [data], list(descriptors)) if descriptors else 0
    if sent < len(data):
        sock.sendall(data[sent:])


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Receives one message; returns it with its file descriptors, which the caller closes. Raises WireClosed at the end
    of the stream and for bytes that are no message, TimeoutError after the socket's timeout."""
    head, descriptors, _, _ = socket.recv_fds(sock, 4, MAX_DESCRIPTORS)
    deadline = None if sock.gettimeout() is None else time.monotonic() + (sock.gettimeout() or 0.0)
    head += _exactly(sock, 4 - len(head), deadline) if head else b""
    if not head:
        raise WireClosed("the peer closed the socket")
    (length,) = struct.unpack("<I", head)
    if length > MAX_MESSAGE:
        raise WireClosed(f"message of {length} bytes")
    try:
        message = json.loads(_exactly(sock, length, deadline))
    except (ValueError, RecursionError) as error:
        raise WireClosed(f"not a message: {error}") from error
    if not isinstance(message, dict):
        raise WireClosed("message is not an object")
    return message, descriptors


def _exactly(sock: socket.socket, size: int, deadline: float | None) -> bytes:
    parts = []
    while size:
        # The socket's own timeout starts again with every byte.
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError("timed out")
        part = sock.recv(min(size, 1 << 20))
        if not part:
            raise WireClosed("the peer closed the socket in the middle of a message")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
