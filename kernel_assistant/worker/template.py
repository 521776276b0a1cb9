"""A process that has torch imported and forks workers (docs/templates.md). `boot_template.py` starts it.

It runs no user code and no parallel region (libgomp does not survive a fork after one), starts no thread and opens no
device; where an import has done so all the same, it ends and workers are started without it. What fork duplicates, and
what is done about that in a child, is in `forked.py`.
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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from .forked import Order, changed_at_start, receive, send

#: What opening a first task and compiling it import, which takes as long as torch itself.
IMPORTED = (".main", ".judge", ".freeform.judge", "torch._dynamo", "torch._export.utils", "torch._inductor.compile_fx")
#: A client sends its request at once; one that does not must not keep others waiting.
REQUEST_SECONDS = 5.0
#: No wait is timed that is longer: as good as for ever, and more milliseconds than the system takes.
LONG_SECONDS = 1e6
UNFIT = 3
#: The number of pidfd_open. Pythons that were built on an old system, as many are, lack `os.pidfd_open`.
PIDFD_OPEN = 434


class Watched(Protocol):
    def fileno(self) -> int: ...
    def close(self) -> None: ...


@dataclass
class Child:
    """A worker. `client` is None once it has left, `status` (negative: a signal) until it has ended."""

    pid: int
    process: Watched
    client: socket.socket | None
    status: int | None = None


class Template:
    """Clients come from `source`: a socket that listens, or one over which a single process hands connections.

    On its connection a client sends an order and gets `{"pid"}` from the child, then `{"status"}` when that has ended.
    Until the client closes it the child is not reaped, so its number stays its own.
    """

    def __init__(self, source: socket.socket, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._idle_since = time.monotonic()
        self._children = 0
        self._watched: dict[Watched, Callable[[], Order | None]] = {source: partial(self._accept, source)}

    def serve(self) -> Order | None:
        """In a child what it is to become; None where the template ends: without children, and idle or left alone."""
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

    def _ready(self) -> list[Watched]:
        """Those with something to do, none where there was nothing for as long as it stays without children."""
        poll = select.poll()
        for watched in self._watched:
            poll.register(watched.fileno(), select.POLLIN)
        left = max(self._idle_since + self._idle_seconds - time.monotonic(), 0)
        ready = dict(poll.poll(None if self._children or left > LONG_SECONDS else left * 1000))
        return [watched for watched in self._watched if watched.fileno() in ready]

    def _accept(self, source: socket.socket) -> None:
        """A connection, or the end of them."""
        client = _accepted(source) if _listens(source) else _handed(source)
        if client is not None:
            client.settimeout(REQUEST_SECONDS)
            self._watched[client] = partial(self._fork, client)
        elif not _listens(source):
            del self._watched[source]
            source.close()

    def _fork(self, client: socket.socket) -> Order | None:
        """The order, in the child. A client that gets no answer starts its worker itself."""
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
        found = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert found is not None
        child.status = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        if child.client is None:
            self._reap(child)
        else:
            with suppress(OSError):
                send(child.client, {"status": child.status})

    def _abandoned(self, child: Child) -> None:
        """The client has the status, or is gone: then the worker's input has ended, and it ends by itself."""
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
    """The exit status of the template, or of a worker that was forked from it."""
    source = socket.socket(fileno=descriptor)
    if _listens(source) and os.fork():
        os._exit(0)  # what serves others is nobody's child
    changed = changed_at_start()
    _import()
    if not _is_fit(source):
        return UNFIT
    order = Template(source, idle_seconds).serve()
    if order is None:
        os._exit(0)  # there is nothing to be put in order, which would take half a second
    order.carry_out(changed)
    from .main import main as work

    return work()


def _import() -> None:
    from .pinning import load_torch

    load_torch()
    importlib.import_module("torch")
    for name in IMPORTED:
        with suppress(ImportError):  # another version of torch may have it elsewhere, and the worker imports it later
            importlib.import_module(name, __package__)
    if os.fork() == 0:
        os._exit(0)
    os.wait()  # before a fork OpenBLAS ends the threads that it started when numpy was imported
    gc.freeze()


def _is_fit(source: socket.socket) -> bool:
    """Whether a fork of this process is as good as a process of its own."""
    held = {0, 1, 2, source.fileno()}
    descriptors = {int(name) for name in os.listdir("/proc/self/fd") if _is_open(name)}
    return _has_one_thread() and not _has_children() and descriptors == held


def _process(pid: int) -> Watched:
    """Can be read from once the process has ended."""
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
    """False for the one that listed them."""
    return os.path.lexists(f"/proc/self/fd/{descriptor}")


def _listens(source: socket.socket) -> bool:
    return bool(source.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _accepted(source: socket.socket) -> socket.socket | None:
    """None for another user's, and for one that has left already."""
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
    """None where no more will come."""
    try:
        _, descriptors, _, _ = socket.recv_fds(source, 1, 1, socket.MSG_CMSG_CLOEXEC)
    except OSError:
        return None
    return socket.socket(fileno=descriptors[0]) if descriptors else None
