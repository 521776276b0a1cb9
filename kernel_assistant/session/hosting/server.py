"""The host's socket server: one thread for each connection, one small function for each method."""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from kernel_assistant.errors import HostError, InternalError, KernelAssistantError
from kernel_assistant.records import KernelTask, to_builtins
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.session.hosting.jobs import JobTable
from kernel_assistant.session.wire import PROTOCOL, HostShuttingDown, SocketConnection, error_to_wire, hello, newer
from kernel_assistant.signals import SignalSafeEvent
from kernel_assistant.store import JobOptions, JobState

_log = logging.getLogger(__name__)


class Server:
    """Answers clients until `stop` is set. `retiring` is True once a client with newer code has connected; the host
    then ends as soon as it has no jobs."""

    def __init__(self, listener: socket.socket, jobs: JobTable) -> None:
        self._listener = listener
        self._jobs = jobs
        self._started = time.time()
        self._requests = 0
        self._lock = threading.Lock()
        self._hello = hello()
        self._last_work = time.monotonic()
        self.stop = SignalSafeEvent()
        self.closed = threading.Event()
        self.retiring = False

    def accept_forever(self) -> None:
        """Accepts connections, in a thread, until the listener is closed."""
        while not self.stop.is_set():
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(stream,), daemon=True).start()

    def idle_seconds(self) -> float:
        """Returns for how many seconds there has been neither a job nor a request; about 0 while there is one."""
        with self._lock:
            if self._jobs.active or self._requests:
                self._last_work = time.monotonic()
            return time.monotonic() - self._last_work

    def drain(self, timeout: float) -> None:
        """Waits at most `timeout` seconds until watching clients have received the last events; then ends their
        requests."""
        deadline = time.monotonic() + timeout
        while self._requests and time.monotonic() < deadline:
            time.sleep(0.01)
        self.closed.set()

    def _converse(self, stream: socket.socket) -> None:
        connection = SocketConnection(stream)
        try:
            if _same_user(stream) and self._greet(connection):
                while (request := connection.receive()) is not None:
                    self._handle(connection, request)
        except (OSError, HostError) as error:
            # A client that disconnects or sends nonsense is only logged; jobs do not depend on it.
            _log.info("a client went: %s", error)
        finally:
            connection.close()

    def _greet(self, connection: SocketConnection) -> bool:
        theirs = connection.receive(timeout=10.0)
        if theirs is None:
            return False
        self.retiring = self.retiring or newer(theirs, self._hello)
        if theirs.get("hello") == PROTOCOL:
            connection.send({**self._hello, "pid": os.getpid(), "busy": self._jobs.active})
            return True
        cause = f"the session host {self._hello['version']} speaks protocol {PROTOCOL}, not {theirs.get('hello')}"
        error = HostError(cause, "kernel-assistant host stop, then try again")
        connection.send({**self._hello, "error": error_to_wire(error), "busy": self._jobs.active})
        return False

    def _handle(self, connection: SocketConnection, request: dict[str, Any]) -> None:
        identity = request.get("id")
        self._count(1)
        try:
            result = self._answer(connection, identity, request)
        except KernelAssistantError as error:
            connection.send({"id": identity, "error": error_to_wire(error)})
        except (KeyError, TypeError, ValueError) as error:
            _log.exception("bad request %s", request.get("method"))
            failure = InternalError(f"the host could not answer {request.get('method')!r}: {error!r}")
            connection.send({"id": identity, "error": error_to_wire(failure)})
        else:
            connection.send({"id": identity, "result": result})
        finally:
            self._count(-1)

    def _answer(self, connection: SocketConnection, identity: Any, request: dict[str, Any]) -> Any:
        params = request.get("params") or {}
        if request.get("method") == "attach":
            return self._attach(connection, identity, **params)
        method = self._methods().get(str(request.get("method")))
        if method is None:
            raise HostError(f"the session host has no method {request.get('method')!r}", "upgrade kernel-assistant")
        return method(**params)

    def _methods(self) -> dict[str, Callable[..., Any]]:
        return {
            "ping": lambda: "pong",
            "submit": self._submit,
            "jobs": self._list,
            "cancel": lambda job: self._jobs.cancel(job).value,
            "say": self._jobs.say,
            "status": self._status,
            "shutdown": self._shutdown,
        }

    def _submit(self, task: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        if self.retiring and self._jobs.retire():
            raise HostShuttingDown("the session host makes room for a newer one", "try again")
        if self.retiring:
            cause = f"a session host of older code ({self._hello['version']}) is busy with {self._jobs.active} jobs"
            raise HostError(cause, "wait for them (kernel-assistant jobs), or: kernel-assistant host stop")
        return asdict(self._jobs.submit(from_builtins(task, KernelTask), from_builtins(options, JobOptions)))

    def _attach(self, connection: SocketConnection, identity: Any, job: str, from_seq: int = 0) -> dict[str, Any]:
        log = self._jobs.watch(job)
        for line in log.follow(from_seq, lambda: self.closed.is_set() or connection.peer_gone()):
            connection.send_line(b'{"id":%d,"event":%s}' % (int(identity), line))
        return {"job": log.job, "ended": log.ended}

    def _list(self, limit: int = 100) -> list[dict[str, Any]]:
        """Returns at most `limit` jobs as dicts: queued, running and interrupted jobs first, then the newest ended
        ones."""
        open_states = (JobState.queued, JobState.running, JobState.interrupted)
        closed_states = tuple(state for state in JobState if state not in open_states)
        rows = self._jobs.rows(states=open_states, limit=limit)
        rows += self._jobs.rows(states=closed_states, limit=max(0, limit - len(rows)))
        return [to_builtins(row) for row in rows]

    def _status(self) -> dict[str, Any]:
        with self._lock:
            requests = self._requests - 1
        return {
            **self._hello,
            "pid": os.getpid(),
            "started": self._started,
            "active_jobs": self._jobs.active,
            "other_requests": requests,
            "retiring": self.retiring,
        }

    def _shutdown(self) -> str:
        self.stop.set()
        return "stopping"

    def _count(self, change: int) -> None:
        with self._lock:
            self._requests += change
            self._last_work = time.monotonic()


def _same_user(stream: socket.socket) -> bool:
    """Whether the client's process belongs to the same user. The mode of the socket's folder ensures that too, unless
    somebody changed the mode by hand."""
    credentials = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return bool(uid == os.getuid())
