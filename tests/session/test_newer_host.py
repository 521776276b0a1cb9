"""A host that is newer than its client: an editor's server continues while the package is upgraded."""

from __future__ import annotations

import socket

import msgspec
import pytest

from kernel_assistant.errors import HostError
from kernel_assistant.events import JobFailed, Progress
from kernel_assistant.session.client import EventStream
from kernel_assistant.session.wire import SocketConnection

_NEW = {"type": "said_something", "seq": 2, "job": "1", "words": "hm"}
_KNOWN = Progress(seq=1, job="1", phase="search", message="searching")
_LAST = JobFailed(seq=3, job="1", cause="no compiler", next_step="install one", exit_code=3)


@pytest.fixture
def told():
    """A function: events and the end → a stream that a host fills with them."""
    ours, theirs = socket.socketpair()

    def tell(*events: object) -> EventStream:
        host = SocketConnection(theirs)
        for event in events:
            host.send({"event": event})
        host.send({"id": 1, "result": {"ended": True}})
        return EventStream(SocketConnection(ours), "1", 1)

    yield tell
    ours.close()
    theirs.close()


def test_events_of_an_unknown_kind_are_passed_over(told):
    assert list(told(_NEW, _KNOWN, _NEW, _LAST)) == [_KNOWN, _LAST]


def test_an_end_that_is_not_understood_is_said(told):
    stream = told(_KNOWN, {**msgspec.to_builtins(_LAST), "shape": "new"})
    assert stream.next() == _KNOWN
    with pytest.raises(HostError, match="newer than this program"):
        stream.next()
