"""Framing between host and worker: one JSON header and any number of binary blobs. Standard library only.

    frame := b"KA01" | u32 header bytes | header (UTF-8 JSON object) | blobs
    header["blobs"] lists the byte lengths of the blobs that follow, in order.

Little-endian. The same bytes go over a pipe, ssh or a socket.
"""

from __future__ import annotations

import json
import struct
from typing import IO, Any

PROTOCOL_VERSION = 1
MAGIC = b"KA01"
MAX_HEADER = 64 << 20
MAX_BLOB = 1 << 30


class FrameError(ValueError):
    """The peer sent bytes that are not a frame."""


def write_frame(stream: IO[bytes], message: dict[str, Any], blobs: tuple[bytes, ...] = ()) -> None:
    """Writes `message` and `blobs` as one frame, and flushes. Not thread-safe: if threads share the stream, the caller
    has to hold a lock."""
    header = json.dumps({**message, "blobs": [len(blob) for blob in blobs]}, separators=(",", ":")).encode()
    stream.write(b"".join((MAGIC, struct.pack("<I", len(header)), header, *blobs)))
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[dict[str, Any], tuple[bytes, ...]] | None:
    """Reads one frame. Returns (message, blobs), or None if the stream ended between frames. Raises FrameError if the
    bytes are not a frame or the stream ends inside one."""
    prefix = _read_exactly(stream, 8, at_boundary=True)
    if prefix is None:
        return None
    if prefix[:4] != MAGIC:
        raise FrameError(f"bad magic {prefix[:4]!r}")
    (size,) = struct.unpack("<I", prefix[4:])
    if size > MAX_HEADER:
        raise FrameError(f"header of {size} bytes")
    header = _read_exactly(stream, size)
    try:
        message = json.loads(header or b"")
    except (ValueError, RecursionError) as error:
        raise FrameError(f"header is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise FrameError("header is not an object")
    lengths = message.pop("blobs", [])
    if not isinstance(lengths, list) or any(type(size) is not int or not 0 <= size <= MAX_BLOB for size in lengths):
        raise FrameError("bad blob lengths")
    return message, tuple(_read_exactly(stream, length) or b"" for length in lengths)


def _read_exactly(stream: IO[bytes], size: int, at_boundary: bool = False) -> bytes | None:
    parts: list[bytes] = []
    left = size
    while left:
        part = stream.read(left)
        if not part:
            if at_boundary and not parts:
                return None
            raise FrameError(f"stream ended {left} bytes early")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
