"""Forks workers from a template process that has imported torch, so that the workers need not import it
(docs/templates.md).

A template belongs to this process, or is shared by all processes of a user that name the same folder. If a template
fails, the worker is started without one.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import socket
import stat
import struct
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kernel_assistant.environment.template_key import PROGRAM, VARIABLE, TemplateKey, open_process
from kernel_assistant.worker.frames import FrameError, read_frame, write_frame

_log = logging.getLogger(__name__)

#: How long importing torch may take. A worker that is then started without a template has the same time again.
ANSWER_SECONDS = 60.0
#: A shared template ends after this time without a worker.
SHARED_SECONDS = 60.0
STATUS_SECONDS = 5.0
#: The status of a process whose template ended first, if the operating system does not report the status.
UNKNOWN_STATUS = 255
#: From linux/pidfd.h.
PIDFD_GET_INFO = 0xC040FF0B
PIDFD_INFO_EXIT = 1 << 3


@dataclass(frozen=True)
class WorkerOrder:
    """A request to start a worker. `files` are descriptors of its stdin, stdout, stderr and working folder. If this
    process has to start a template (a process that has imported torch) for the request, that template ends once it has
    had no worker for `idle_seconds`."""

    python: str
    env: dict[str, str]
    files: tuple[int, int, int, int]
    key: TemplateKey
    idle_seconds: float


@dataclass(frozen=True)
class TemplateConnection:
    """A connection to a template, the process from which workers are forked. `fresh` says whether the template was
    started for this connection."""

    channel: socket.socket
    fresh: bool


def fork(order: WorkerOrder, connection: TemplateConnection | None, stop: threading.Event) -> ForkedWorker | None:
    """Returns a worker forked from the template at the other end of `connection`. None if there is no template, if
    forking fails, or if `stop` is set before the template answers."""
    until = time.monotonic() + ANSWER_SECONDS
    while connection is not None:
        forked = _ask(connection.channel, order, stop, until)
        if forked is not None:
            return forked
        connection.channel.close()
        if stop.is_set():
            break
        _templates.drop(order.key.name, connection.fresh)
        # An older template may have ended just now because it was idle, so try again. A fresh one that fails is broken.
        connection = None if connection.fresh or time.monotonic() > until else connect(order)
    return None


class ForkedWorker:
    """A worker process that is a child of its template. Used like a `subprocess.Popen`. Unless the template has died,
    the process number is not reused before the exit status is read."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._connection = connection
        self._lock = threading.Lock()
        self._descriptor = open_process(pid)
        weakref.finalize(self, os.close, self._descriptor)

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None and _readable(self._descriptor, 0):
                self.returncode = self._status()
                self._connection.close()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit status. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        _readable(self._descriptor, timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(PROGRAM), timeout or 0.0)
        return code

    def _status(self) -> int:
        """Returns the exit status, which the template reports; the template then lets the system reuse the process
        number."""
        self._connection.settimeout(STATUS_SECONDS)
        frame = None
        with suppress(OSError, FrameError), self._connection.makefile("rb") as stream:
            frame = read_frame(stream)
            self._connection.shutdown(socket.SHUT_WR)
            stream.read()
        return _status_from_kernel(self._descriptor) if frame is None else int(frame[0]["status"])


@dataclass(frozen=True)
class _OwnTemplate:
    """A template that only this process uses. It ends when this process closes `control`."""

    control: socket.socket
    process: subprocess.Popen[bytes]

    def connect(self) -> socket.socket | None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self.control, [b"\0"], [theirs.fileno()])
            except OSError:
                ours.close()
                return None
        return ours


@dataclass
class _Templates:
    """The templates that this process has started, by name. `refused` has the names of those that failed right after
    their start; they are not started again."""

    own: dict[str, _OwnTemplate] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def connect(self, order: WorkerOrder) -> TemplateConnection | None:
        """Connects to the template (the process to fork from) that `order` needs, and starts it if there is none.
        Returns None if that fails."""
        if order.key.name in self.refused:
            return None
        try:
            folder = order.env.get(VARIABLE)
            return _connect_shared(folder, order) if folder else self._connect_own(order)
        except OSError as error:
            _log.warning("no template: %s", error)
            return None

    def drop(self, name: str, fresh: bool) -> None:
        with self.lock:
            own = self.own.pop(name, None)
            if fresh:
                self.refused.add(name)
        if own is not None:
            own.control.close()
            if fresh:
                own.process.kill()
            own.process.poll()

    def after_fork(self) -> None:
        """Forgets all templates in a forked child of this process, because a child must not use those of its parent."""
        for own in self.own.values():
            own.control.close()
        self.own, self.lock = {}, threading.Lock()

    def _connect_own(self, order: WorkerOrder) -> TemplateConnection | None:
        with self.lock:
            own = self.own.get(order.key.name)
            connection = own.connect() if own else None
            if connection is not None:
                return TemplateConnection(connection, fresh=False)
            own = self.own[order.key.name] = _start_own(order)
            connection = own.connect()
            return TemplateConnection(connection, fresh=True) if connection else None


_templates = _Templates()
connect = _templates.connect
os.register_at_fork(after_in_child=_templates.after_fork)


def _start_own(order: WorkerOrder) -> _OwnTemplate:
    ours, theirs = socket.socketpair()
    with theirs:
        return _OwnTemplate(ours, _start(order, theirs, order.idle_seconds))


def _start(order: WorkerOrder, source: socket.socket, idle_seconds: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [order.python, str(PROGRAM), str(source.fileno()), str(idle_seconds)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=order.env,
        cwd=order.key.folder,
        start_new_session=True,
        pass_fds=[source.fileno()],
    )


def _connect_shared(folder: str, order: WorkerOrder) -> TemplateConnection | None:
    """Connects to a shared template. The first process that finds none starts it; others wait. Raises OSError."""
    with _private(folder) as near:
        address = f"{near}/{order.key.name}"
        connection = _dial(address)
        if connection is not None:
            return TemplateConnection(connection, fresh=False)
        with open(f"{near}/lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            connection = _dial(address)
            if connection is not None:
                return TemplateConnection(connection, fresh=False)
            _start_shared(address, order)
            connection = _dial(address)
            return TemplateConnection(connection, fresh=True) if connection else None


def _start_shared(address: str, order: WorkerOrder) -> None:
    """Starts a shared template that listens at `address`. It accepts connections at once and answers when torch is
    imported. The process that is started here forks the template and ends."""
    Path(address).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(128)
        with suppress(subprocess.TimeoutExpired):
            _start(order, listener, SHARED_SECONDS).wait(STATUS_SECONDS)


@contextmanager
def _private(folder: str) -> Iterator[str]:
    """Yields a short path to `folder`, because the address of a Unix socket has a limited length. Raises OSError if
    other users have access to the folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) != 0o700:
            raise PermissionError(f"{folder} is not a folder of this user alone (mode 0700)")
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _dial(address: str) -> socket.socket | None:
    """Connects to a socket. Returns None if no process listens there. Raises OSError, also if another user listens."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(address)
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user != os.getuid():
            raise PermissionError(f"user {user} listens at {address}")
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError:
        connection.close()
        raise
    return connection


def _ask(connection: socket.socket, order: WorkerOrder, stop: threading.Event, until: float) -> ForkedWorker | None:
    """Sends a request for a worker to the template. Returns the forked worker; None if there is no answer, or if `stop`
    is set first."""
    try:
        connection.settimeout(ANSWER_SECONDS)
        socket.send_fds(connection, [b"\0"], order.files)
        with connection.makefile("wb") as stream:
            write_frame(stream, {"env": order.env})
        while not _readable(connection.fileno(), 0.05):
            if stop.is_set() or time.monotonic() > until:
                return None
        with connection.makefile("rb") as answer:
            frame = read_frame(answer)
        return ForkedWorker(frame[0]["pid"], connection) if frame is not None and "pid" in frame[0] else None
    except (OSError, FrameError):
        return None


def _readable(descriptor: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else max(seconds, 0) * 1000))


def _status_from_kernel(descriptor: int) -> int:
    """Returns the exit status from the kernel: Linux 6.15 and newer keep it for holders of a pidfd. Returns
    UNKNOWN_STATUS on older systems."""
    until = time.monotonic() + STATUS_SECONDS
    while time.monotonic() < until:
        info = bytearray(struct.pack("Q56x", PIDFD_INFO_EXIT))
        try:
            fcntl.ioctl(descriptor, PIDFD_GET_INFO, info)
        except OSError:
            break
        (mask, code) = struct.unpack("Q52xi", info)
        if mask & PIDFD_INFO_EXIT:
            return os.waitstatus_to_exitcode(code)
        time.sleep(0.01)
    return UNKNOWN_STATUS
