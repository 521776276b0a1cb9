"""A process that has torch imported and forks workers (docs/templates.md). `boot_template.py` starts it.

It runs no user code and no parallel region (libgomp does not survive a fork after one), starts no thread and opens no
device. If an import breaks one of these rules, the template ends and workers are started without it. `forked.py` says
what fork duplicates and what a child does about that.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Protocol

from .forked import ForkOrder, changed_at_start, receive, send

#: Modules that the first task and its compilation import, which takes as long as importing torch itself.
IMPORTED = (".main", ".judge", ".freeform.judge", "torch._dynamo", "torch._export.utils", "torch._inductor.compile_fx")
#: Seconds to wait for a client's request, which should come at once: a slow client must not block others.
REQUEST_SECONDS = 5.0
#: Longer waits get no timeout: poll does not accept so many milliseconds.
LONG_SECONDS = 1e6
UNFIT = 3
#: The function by which torch's modules ask the driver during import (`torch.cuda.is_available`), in builds for CUDA.
COUNT_DEVICES = "_cuda_getDeviceCount"
#: The system call number of pidfd_open. Many Pythons were built on an old system and lack `os.pidfd_open`.
PIDFD_OPEN = 434


class Pollable(Protocol):
    def fileno(self) -> int: ...
    def close(self) -> None: ...


@dataclass
class Child:
    """A forked worker. `process` becomes readable when it has ended. `client` is the connection to the client that
    asked for it, None once the client has closed it; `status` (negative: a signal) is None until the worker has
    ended."""

    pid: int
    process: Pollable
    client: socket.socket | None
    status: int | None = None


class Template:
    """Forks workers for its clients, which connect to `source`: a socket that listens, or one over which a single
    process sends connections.

    On its connection a client sends a request (`ForkOrder`) and gets `{"pid"}` from the child, then `{"status"}` when
    the child has ended. The child is not reaped before the client closes the connection, so its process id is not
    reused.
    """

    def __init__(self, source: socket.socket, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._idle_since = time.monotonic()
        self._children = 0
        self._watched: dict[Pollable, Callable[[], ForkOrder | None]] = {source: partial(self._accept, source)}

    def serve(self) -> ForkOrder | None:
        """Serves clients. In a forked child, returns the `ForkOrder` that the child has to carry out. In the template,
        returns None when it ends: it had no children and no request for the idle time, or its sources are closed.
        """
        while self._watched:
            ready = self._ready()
            if not ready and not self._children:
                break
            for watched in ready:
                handler = self._watched.get(watched)
                order = handler() if handler else None
                if order is not None:
                    return order
        return None

    def _ready(self) -> list[Pollable]:
        """Waits for events. Returns the sockets and processes that have one; empty if the template has had no children
        and no event for its idle time."""
        poll = select.poll()
        for watched in self._watched:
            poll.register(watched.fileno(), select.POLLIN)
        left = max(self._idle_since + self._idle_seconds - time.monotonic(), 0)
        ready = dict(poll.poll(None if self._children or left > LONG_SECONDS else left * 1000))
        return [watched for watched in self._watched if watched.fileno() in ready]

    def _accept(self, source: socket.socket) -> None:
        """Accepts a connection and waits for its request from now on. If no more connections will come over `source`,
        closes it."""
        client = _accepted(source) if _listens(source) else _handed(source)
        if client is not None:
            client.settimeout(REQUEST_SECONDS)
            self._watched[client] = partial(self._fork, client)
        elif not _listens(source):
            del self._watched[source]
            source.close()

    def _fork(self, client: socket.socket) -> ForkOrder | None:
        """Receives a client's request and forks a worker. Returns the `ForkOrder` in the child, None in the template.
        If there is no fork, the client gets no answer and starts its worker itself."""
        del self._watched[client]
        order = receive(client)
        if order is None:
            client.close()
            return None
        try:
            pid = os.fork() if _has_one_thread() else -1
        except OSError:
            pid = -1
        if pid == 0:
            self._close()
            return order
        order.close()
        if pid < 0:
            client.close()
        else:
            self._follow(Child(pid, _process(pid), client))
        return None

    def _follow(self, child: Child) -> None:
        self._children += 1
        self._watched[child.process] = partial(self._ended, child)
        if child.client is not None:
            self._watched[child.client] = partial(self._abandoned, child)

    def _ended(self, child: Child) -> None:
        del self._watched[child.process]
        child.process.close()
        status = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert status is not None
        child.status = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
        if child.client is None:
            self._reap(child)
        else:
            with suppress(OSError):
                send(child.client, {"status": child.status})

    def _abandoned(self, child: Child) -> None:
        """Removes a client that has closed its connection. If the worker still runs then, its input has ended, so it
        will end too.
        """
        client, child.client = child.client, None
        assert client is not None
        del self._watched[client]
        if child.status is not None:
            self._reap(child)
        client.close()

    def _reap(self, child: Child) -> None:
        os.waitpid(child.pid, 0)
        self._children -= 1
        self._idle_since = time.monotonic()

    def _close(self) -> None:
        for watched in self._watched:
            watched.close()


def main(descriptor: int, idle_seconds: float) -> int:
    """Runs the template on the socket `descriptor`, until it has had no children for `idle_seconds`. Returns the exit
    status of the template, or of a worker that was forked from it."""
    source = socket.socket(fileno=descriptor)
    if _listens(source) and os.fork():
        os._exit(0)  # a template that serves others has no parent
    changed = changed_at_start()
    _import()
    if not _is_fit(source):
        return UNFIT
    order = Template(source, idle_seconds).serve()
    if order is None:
        os._exit(0)  # skip the interpreter's cleanup, which would take half a second
    order.carry_out(changed)
    from .main import main as work

    return work()


def _import() -> None:
    from .process.pinning import load_torch

    load_torch()
    importlib.import_module("torch")
    with devices_counted_elsewhere():
        for name in IMPORTED:
            with suppress(ImportError):  # another version of torch may lack it; the worker imports it later
                importlib.import_module(name, __package__)
    if os.fork() == 0:
        os._exit(0)
    os.wait()  # before a fork, OpenBLAS ends the threads that it started when numpy was imported
    gc.freeze()


@contextmanager
def devices_counted_elsewhere() -> Iterator[None]:
    """Within the block, torch counts the CUDA devices in a child process: asking the driver starts a thread, opens
    devices, and makes CUDA unusable in forks of this process. (torch's inductor asks during import, to choose how it
    times.)"""
    from torch import _C

    if not hasattr(_C, COUNT_DEVICES):
        yield
        return
    original = getattr(_C, COUNT_DEVICES)
    setattr(_C, COUNT_DEVICES, cache(partial(_in_a_child, original)))
    try:
        yield
    finally:
        setattr(_C, COUNT_DEVICES, original)


def _in_a_child(count: Callable[[], int]) -> int:
    """Returns the result of `count`, which is called in a child process; at most 255, and 0 if it fails there."""
    child = os.fork()
    if child == 0:
        devices = 0
        try:
            devices = count()
        finally:
            os._exit(min(devices, 255))
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


def _is_fit(source: socket.socket) -> bool:
    """Whether a fork of this process would behave like a new process: it has one thread, no children, and no open
    descriptors but 0 to 2 and `source`."""
    held = {0, 1, 2, source.fileno()}
    descriptors = {int(name) for name in os.listdir("/proc/self/fd") if _is_open(name)}
    return _has_one_thread() and not _has_children() and descriptors == held


def _process(pid: int) -> Pollable:
    """Returns a file that becomes readable when the process `pid` has ended (a pidfd)."""
    descriptor = int(ctypes.CDLL(None, use_errno=True).syscall(PIDFD_OPEN, pid, 0))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "pidfd_open")
    return open(descriptor, "rb", buffering=0)


def _has_one_thread() -> bool:
    return len(os.listdir("/proc/self/task")) == 1


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _is_open(descriptor: str) -> bool:
    """Whether the descriptor number `descriptor`, from a listing of /proc/self/fd, is still open. The one through which
    the folder was listed is closed by then."""
    return os.path.lexists(f"/proc/self/fd/{descriptor}")


def _listens(source: socket.socket) -> bool:
    return bool(source.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _accepted(source: socket.socket) -> socket.socket | None:
    """Accepts a connection and returns it. Returns None for a connection of another user, and for one that has closed
    already."""
    try:
        client, _ = source.accept()
    except OSError:
        return None
    _, user, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if user == os.getuid():
        return client
    client.close()
    return None


def _handed(source: socket.socket) -> socket.socket | None:
    """Returns a connection that the other process has sent over `source`; None if no more will come."""
    try:
        _, descriptors, _, _ = socket.recv_fds(source, 1, 1, socket.MSG_CMSG_CLOEXEC)
    except OSError:
        return None
    return socket.socket(fileno=descriptors[0]) if descriptors else None
