"""The client of the session host. Each call opens a connection, so no state is lost if the host ends or restarts."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from kernel_assistant.config import Settings
from kernel_assistant.errors import HostError
from kernel_assistant.events import AnyEvent, JobFailed, JobFinished
from kernel_assistant.records import KernelTask, to_builtins
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.session.start import find_host, has_ended, start_host
from kernel_assistant.session.wire import HostShuttingDown, SocketConnection, error_from_wire, hello, newer
from kernel_assistant.store import JobOptions, JobRow, JobState

_HELLO_TIMEOUT_S = 15.0
_RETRY_FOR_S = 8.0
_STOP_TIMEOUT_S = 15.0

T = TypeVar("T")


class Client:
    """A client of the session host for the state folder in `settings`. Every method raises HostError if the host cannot
    be reached."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def submit(self, task: KernelTask, options: JobOptions) -> dict[str, Any]:
        """Queues a new job, or joins or continues an unfinished one with the same task and options. Returns `{"job",
        "joined", "resumed", "ahead"}`: the job's number, two booleans, and the number of jobs that run before it."""
        result: dict[str, Any] = self._call("submit", task=to_builtins(task), options=to_builtins(options))
        return result

    def jobs(self, limit: int = 100) -> list[JobRow]:
        """Returns at most `limit` jobs: first the unfinished jobs, then the ended ones, each group newest first."""
        return [from_builtins(row, JobRow) for row in self._call("jobs", limit=limit)]

    def cancel(self, job: str, *, timeout: float | None = None) -> JobState:
        """Cancels a job and returns its state. Raises UsageError for an unknown job; TimeoutError or HostError if the
        host does not answer in `timeout` seconds."""
        return JobState(self._call("cancel", timeout, job=job))

    def say(self, job: str, text: str) -> None:
        """Sends a message to the models of a job, for their next turn. Raises UsageError if the job is neither queued
        nor running, or if no model in it reads messages."""
        self._call("say", job=job, text=text)

    def attach(self, job: str, from_seq: int = 0) -> EventStream:
        """Returns the events of `job` from number `from_seq` on: recorded ones, then new ones until the job ends. An
        interrupted job is queued again. Raises UsageError for an unknown job."""
        return self._retrying(lambda connection: EventStream(connection, job, from_seq))

    def ping(self) -> None:
        self._call("ping")

    def status(self) -> dict[str, Any] | None:
        """Returns the host's status; None if there is no host or the host is ending. Does not start a host."""
        try:
            connection = self._find()
            return None if connection is None else _ask(connection, "status")
        except HostShuttingDown:
            return None

    def shutdown(self) -> bool:
        """Makes the running host, of whatever version, cancel its jobs and end, and waits until it has ended. Returns
        False if there is no host.

        Raises HostError if the host does not end.
        """
        stream = find_host(self._settings)
        if stream is None:
            return False
        pid = _peer(stream)
        stream.close()
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while time.monotonic() < deadline:
            if has_ended(self._settings, pid):
                return True
            time.sleep(0.02)
        raise HostError(f"the session host (pid {pid}) does not end", f"kill -9 {pid}")

    def _reach(self) -> socket.socket | None:
        """Returns a socket that is connected to the host; None if there is no host. Subclasses for hosts on remote
        machines override this method."""
        return find_host(self._settings)

    def _start(self) -> None:
        start_host(self._settings)

    def _find(self, timeout: float | None = None) -> SocketConnection | None:
        stream = self._reach()
        if stream is None:
            return None
        connection = SocketConnection(stream)
        _greet(connection, _HELLO_TIMEOUT_S if timeout is None else timeout)
        return connection

    def _call(self, method: str, timeout: float | None = None, **params: Any) -> Any:
        return self._retrying(lambda connection: _ask(connection, method, timeout, **params), timeout)

    def _retrying(self, action: Callable[[SocketConnection], T], timeout: float | None = None) -> T:
        """Connects to the host, exchanges the first messages (`hello`) and returns `action(connection)`; starts a host
        if there is none. If the host is ending, tries again for `timeout` seconds (None: _RETRY_FOR_S), then raises
        HostShuttingDown."""
        deadline = time.monotonic() + (_RETRY_FOR_S if timeout is None else timeout)
        while True:
            try:
                return action(self._find(timeout) or self._started())
            except HostShuttingDown:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _started(self) -> SocketConnection:
        self._start()
        connection = self._find()
        if connection is None:
            raise HostShuttingDown(
                "the session host ended as soon as it had started", "see its log (kernel-assistant doctor)"
            )
        return connection


class EventStream:
    """Iterates over the events of one job. `seq` is the number of the last event received; to continue later, attach
    again with `from_seq=seq + 1`."""

    def __init__(self, connection: SocketConnection, job: str, from_seq: int) -> None:
        self._connection = connection
        self.job = job
        self.seq = 0
        self.ended = False
        self._skipped = False
        self._first: AnyEvent | None = None
        connection.send({"id": 1, "method": "attach", "params": {"job": job, "from_seq": from_seq}})
        # The first event is fetched here, so that the call itself raises for an unknown job and an ending host.
        self._first = self._receive(None)

    def __iter__(self) -> Iterator[AnyEvent]:
        while (event := self.next()) is not None:
            yield event

    def next(self, timeout: float | None = None) -> AnyEvent | None:
        """Returns the next event, None after the last one. Raises TimeoutError if no event comes within `timeout`
        seconds, HostError if the host dies before the job ends."""
        if self._first is not None:
            event, self._first = self._first, None
            return event
        return None if self.ended else self._receive(timeout)

    def close(self) -> None:
        self._connection.close()

    def _receive(self, timeout: float | None) -> AnyEvent | None:
        message = _receive(self._connection, timeout, f"kernel-assistant attach {self.job} goes on with it")
        while "event" in message:
            event = _understood(message["event"])
            if event is not None:
                self.seq, self.job = event.seq, event.job
                self.ended = isinstance(event, (JobFinished, JobFailed))
                return event
            self._skipped = True
            message = _receive(self._connection, timeout, f"kernel-assistant attach {self.job} goes on with it")
        if "error" in message:
            raise error_from_wire(message["error"])
        if not message["result"]["ended"]:
            raise HostError(
                "the session host ended in the middle", f"kernel-assistant attach {self.job} goes on with it"
            )
        if self._skipped:
            raise HostError("the session host is newer than this program", "start this program again")
        self.ended = True
        return None


def _understood(document: object) -> AnyEvent | None:
    """Decodes an event. Returns None for a kind of event that this program does not know, because the host is newer."""
    try:
        event: AnyEvent = msgspec.convert(document, AnyEvent)
        return event
    except msgspec.ValidationError:
        return None


_identities = itertools.count(1)


def _ask(connection: SocketConnection, method: str, timeout: float | None = None, **params: Any) -> Any:
    """Sends one request, closes the connection and returns the answer. Raises the exception that the host answered
    with, and HostError if the connection breaks."""
    try:
        connection.send({"id": next(_identities), "method": method, "params": params})
        message = _receive(connection, timeout, "try again")
    except TimeoutError:
        raise
    except OSError as error:
        raise HostShuttingDown(f"the session host went away: {error}", "try again") from error
    finally:
        connection.close()
    if "error" in message:
        raise error_from_wire(message["error"])
    return message["result"]


def _receive(connection: SocketConnection, timeout: float | None, next_step: str) -> dict[str, Any]:
    try:
        message = connection.receive(timeout)
    except TimeoutError:
        raise
    except OSError as error:
        raise HostError(f"the session host went away: {error}", next_step) from error
    if message is None:
        raise HostError("the session host went away", next_step)
    return message


def _peer(stream: socket.socket) -> int:
    pid, _, _ = struct.unpack("3i", stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(pid)


def _greet(connection: SocketConnection, timeout: float) -> None:
    """Exchanges the first messages (`hello`). Raises HostShuttingDown if the host runs older code than this client and
    has no jobs, because such a host then ends; HostError if the protocols differ or the host does not answer."""
    mine = hello()
    try:
        connection.send(mine)
        theirs = connection.receive(timeout)
    except TimeoutError as error:
        raise HostError("the session host does not answer", "kernel-assistant host stop, then try again") from error
    except OSError as error:
        raise HostShuttingDown(f"the session host went away: {error}", "try again") from error
    if theirs is None:
        raise HostShuttingDown("the session host went away", "try again")
    if newer(mine, theirs) and not theirs.get("busy"):
        connection.close()
        raise HostShuttingDown(
            "a session host of older code is making room", "kernel-assistant host stop, then try again"
        )
    if "error" in theirs:
        connection.close()
        raise error_from_wire(theirs["error"])
