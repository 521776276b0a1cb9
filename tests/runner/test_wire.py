"""Messages between judge and runner: any bytes from the untrusted side are a message or a named error."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assistant.worker.runner import wire

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


def received(data: bytes) -> dict[str, object]:
    """The result of `receive` for these bytes, after which the peer closes the connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5)
        theirs.sendall(data)
        theirs.close()
        return wire.receive(ours)[0]


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=8), JSON, max_size=5))
def test_round_trip(message):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(ours, message)
        assert wire.receive(theirs) == (message, [])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_named(data):
    for raw in (data, framed(data)):
        try:
            assert isinstance(received(raw), dict)
        except wire.WireClosed:
            pass


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\1",
        framed(b""),
        framed(b"\xff\xfe"),
        framed(b"[]"),
        framed(b"1"),
        framed(b"{"),
        framed(b"[" * 100_000),
        framed(b'{"a":' * 10_000),
        framed(b'{"a": ' + b"9" * 10_000 + b"}"),
        struct.pack("<I", 1 << 31),
        struct.pack("<I", 100) + b"{}",
    ],
    ids=range(12),
)
def test_bad_messages_are_named(raw):
    with pytest.raises(wire.WireClosed):
        received(raw)


def test_a_peer_that_sends_byte_by_byte_does_not_get_more_time():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.2)
        stop = threading.Event()

        def drip():
            theirs.sendall(struct.pack("<I", 1000))
            while not stop.wait(0.02):
                theirs.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(TimeoutError):
                wire.receive(ours)
        finally:
            stop.set()
            thread.join()


def test_descriptors_travel_with_the_message_and_large_ones_arrive_whole():
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        message = {"text": "x" * 50_000}
        wire.send(ours, message, (writing,))
        got, (descriptor,) = wire.receive(theirs)
    assert got == json.loads(json.dumps(message))
    os.write(descriptor, b"through")
    assert os.read(reading, 7) == b"through"
    for each in (reading, writing, descriptor):
        os.close(each)
