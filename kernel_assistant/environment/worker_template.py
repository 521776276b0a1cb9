"""Workers that are forked from a process with torch imported, in place of ones that import it (docs/templates.md).

A template belongs to this process, or to all of a user's that name one folder. Whatever goes wrong with it, the worker
is started as if there were none.
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

#: How long importing torch may take; a worker that is started without a template has as long again.
ANSWER_SECONDS = 60.0
#: One that is shared ends after so long without a worker.
SHARED_SECONDS = 60.0
STATUS_SECONDS = 5.0
#: Of a process whose template ended before it, where the kernel does not tell.
UNKNOWN_STATUS = 255
#: From linux/pidfd.h.
PIDFD_GET_INFO = 0xC040FF0B
PIDFD_INFO_EXIT = 1 << 3


@dataclass(frozen=True)
class Order:
    """A worker that is wanted. `files` are its stdin, stdout, stderr and working folder; a template that is started for
    it and that this process has to itself ends after `idle_seconds` without a worker."""

    python: str
    env: dict[str, str]
    files: tuple[int, int, int, int]
    key: TemplateKey
    idle_seconds: float


@dataclass(frozen=True)
class Connection:
    """To a template; `fresh` if it was started for that."""

    channel: socket.socket
    fresh: bool


def fork(order: Order, connection: Connection | None, stop: threading.Event) -> Forked | None:
    """The worker, forked from the template. None if that fails, or if `stop` is set before there is an answer."""
    until = time.monotonic() + ANSWER_SECONDS
    while connection is not None:
        forked = _ask(connection.channel, order, stop, until)
        if forked is not None:
            return forked
        connection.channel.close()
        if stop.is_set():
            break
        _templates.drop(order.key.name, connection.fresh)
        # One that was there before may have been idle and ended just now; a fresh one is of no use.
        connection = None if connection.fresh or time.monotonic() > until else connect(order)
    return None


class Forked:
    """A worker process that is its template's child. Used like a `subprocess.Popen`: until its status was taken its
    number is nobody else's, unless the template has died."""

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
        """Raises subprocess.TimeoutExpired."""
        _readable(self._descriptor, timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(PROGRAM), timeout or 0.0)
        return code

    def _status(self) -> int:
        """What the template says, which then lets the process go."""
        self._connection.settimeout(STATUS_SECONDS)
        frame = None
        with suppress(OSError, FrameError), self._connection.makefile("rb") as stream:
            frame = read_frame(stream)
            self._connection.shutdown(socket.SHUT_WR)
            stream.read()
        return _status_from_kernel(self._descriptor) if frame is None else int(frame[0]["status"])


@dataclass(frozen=True)
class _Own:
    """A template of this process, which ends when this end of its socket is closed."""

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
    """Where templates are. Those that ended before they were of use are not started again by this process."""

    own: dict[str, _Own] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def connect(self, order: Order) -> Connection | None:
        """To the template of `order`, which is started where there is none. None if that cannot be done."""
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
        """In a child of this process, which has no template yet."""
        for own in self.own.values():
            own.control.close()
        self.own, self.lock = {}, threading.Lock()

    def _connect_own(self, order: Order) -> Connection | None:
        with self.lock:
            own = self.own.get(order.key.name)
            found = own.connect() if own else None
            if found is not None:
                return Connection(found, fresh=False)
            own = self.own[order.key.name] = _start_own(order)
            found = own.connect()
            return Connection(found, fresh=True) if found else None


_templates = _Templates()
connect = _templates.connect
os.register_at_fork(after_in_child=_templates.after_fork)


def _start_own(order: Order) -> _Own:
    ours, theirs = socket.socketpair()
    with theirs:
        return _Own(ours, _start(order, theirs, order.idle_seconds))


def _start(order: Order, source: socket.socket, idle_seconds: float) -> subprocess.Popen[bytes]:
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


def _connect_shared(folder: str, order: Order) -> Connection | None:
    """Whoever finds none starts it, while others wait. Raises OSError."""
    with _private(folder) as near:
        address = f"{near}/{order.key.name}"
        found = _dial(address)
        if found is not None:
            return Connection(found, fresh=False)
        with open(f"{near}/lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = _dial(address)
            if found is not None:
                return Connection(found, fresh=False)
            _start_shared(address, order)
            found = _dial(address)
            return Connection(found, fresh=True) if found else None


def _start_shared(address: str, order: Order) -> None:
    """It listens from now on, and answers once torch is imported. What is started leaves a child that stays."""
    Path(address).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(128)
        with suppress(subprocess.TimeoutExpired):
            _start(order, listener, SHARED_SECONDS).wait(STATUS_SECONDS)


@contextmanager
def _private(folder: str) -> Iterator[str]:
    """A path to `folder` that is short enough for a socket's address. Raises OSError for what others could write to."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
            raise PermissionError(f"{folder} is not a folder of this user alone (mode 0700)")
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _dial(address: str) -> socket.socket | None:
    """None where nobody listens. Raises OSError, also for another user's process."""
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


def _ask(connection: socket.socket, order: Order, stop: threading.Event, until: float) -> Forked | None:
    """None if there is no answer, or if `stop` is set before."""
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
        return Forked(frame[0]["pid"], connection) if frame is not None and "pid" in frame[0] else None
    except (OSError, FrameError):
        return None


def _readable(descriptor: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else max(seconds, 0) * 1000))


def _status_from_kernel(descriptor: int) -> int:
    """Linux 6.15 and newer keep it for whoever holds a descriptor of the process, once it has been reaped."""
    until = time.monotonic() + STATUS_SECONDS
    while time.monotonic() < until:
        info = bytearray(struct.pack("Q56x", PIDFD_INFO_EXIT))
        try:
            fcntl.ioctl(descriptor, PIDFD_GET_INFO, info)
        except OSError:
            break
        (told, code) = struct.unpack("Q52xi", info)
        if told & PIDFD_INFO_EXIT:
            return os.waitstatus_to_exitcode(code)
        time.sleep(0.01)
    return UNKNOWN_STATUS
