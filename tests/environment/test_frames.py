"""Tests frames between host and worker: any bytes are either a frame or a FrameError."""

from __future__ import annotations

import io
import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assistant.worker.frames import MAGIC, MAX_BLOB, FrameError, read_frame, write_frame


def frame(header: bytes, rest: bytes = b"") -> bytes:
    return MAGIC + struct.pack("<I", len(header)) + header + rest


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.text(max_size=8).filter(lambda key: key != "blobs"), st.integers() | st.text(), max_size=4),
    st.lists(st.binary(max_size=300), max_size=4),
)
def test_round_trip(message, blobs):
    stream = io.BytesIO()
    write_frame(stream, message, tuple(blobs))
    write_frame(stream, {"last": True})
    stream.seek(0)
    assert read_frame(stream) == (message, tuple(blobs))
    assert read_frame(stream) == ({"last": True}, ())
    assert read_frame(stream) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"KA0",
        b"KA02\0\0\0\0",
        MAGIC + struct.pack("<I", 0xFFFFFFFF),
        frame(b"[]"),
        frame(b"\xff"),
        frame(b"[" * 100_000),
        frame(b'{"blobs": 3}'),
        frame(b'{"blobs": {"a": 1}}'),
        frame(b'{"blobs": "12"}'),
        frame(b'{"blobs": [true]}', b"x"),
        frame(b'{"blobs": [-1]}'),
        frame(b'{"blobs": [1.5]}'),
        frame(json.dumps({"blobs": [MAX_BLOB + 1]}).encode()),
        frame(b'{"blobs": [10]}', b"short"),
        frame(b"{}")[:-1],
    ],
    ids=range(15),
)
def test_bad_frames_are_named(raw):
    with pytest.raises(FrameError):
        read_frame(io.BytesIO(raw))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_frame_that_was_cut_or_changed_is_named(data):
    stream = io.BytesIO()
    write_frame(stream, {"id": 7, "method": "verify"}, (b"binary", b"more"))
    raw = bytearray(stream.getvalue())
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(1, len(raw) - 1)) :]
    else:
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_frame(io.BytesIO(bytes(raw)))
    except FrameError:
        pass
