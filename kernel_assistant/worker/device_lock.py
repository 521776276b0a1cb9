"""Shared or exclusive use of a device, between threads and processes.

Timing needs the device alone; verifying, building and writing text may run side by side. A judge spends most of its
time on the host, so it holds the device exclusively for each timed block (several timed calls in a row) or round of
such blocks, and not for a whole candidate: other judges verify between its blocks, and none of their kernels runs
within a block.

Three files in one folder are locked with `flock`, which the system releases when a process dies:

- `users.lock`: shared by everyone who uses the device, exclusive for one holder who uses it alone;
- `turn.lock`: serialises those who want exclusive use;
- `gate.lock`: shared by everyone who waits for or has exclusive use. While it is held, new shared users wait, so that
  the present shared users have to leave only once for all waiting exclusive users.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

FOREVER = float("inf")
#: Seconds between two attempts of a wait that can be cancelled.
PAUSE_SECONDS = 0.002

#: Called repeatedly during a wait; an exception from it ends the wait.
Check = Callable[[], None]


def no_check() -> None:
    """Does nothing. It is the `check` callback of a wait that cannot be cancelled."""


class DeviceLock:
    """The lock of one device, made of files in `folder`. Without a folder the device is not shared, and nothing waits.

    The lock belongs to a thread, whichever `DeviceLock` of the folder the thread used. Taking the lock again in the
    same mode does nothing; `exclusive` inside `shared` releases the shared lock and takes it again afterwards. `settle`
    is called before a lock is released: it waits until the device has finished its work.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, settle: Callable[[], None] = lambda: None) -> None:
        self.folder = None if folder is None else os.fspath(folder)
        self._settle = settle
        self._counting = threading.Lock()
        self._waited = 0.0
        if self.folder is not None:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)

    @property
    def waited(self) -> float:
        """Total seconds that threads have waited for the lock through this object."""
        return self._waited

    @contextmanager
    def shared(self, check: Check = no_check, *, first: bool = False) -> Iterator[None]:
        """Context manager that holds the lock shared. Waits for threads that hold the lock exclusively; also for those
        that wait for exclusive use, unless `first` is set. `check` is called repeatedly during the wait; its exception
        ends the wait."""
        if self.folder is None or self.folder in _holds.held:
            yield
            return
        self._enter(_LockHold(self.folder, alone=False, check=check, first=first))
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def exclusive(self, check: Check = no_check, *, patience: float = FOREVER) -> Iterator[None]:
        """Context manager that holds the lock exclusively. Waits for other exclusive users without limit, but for
        shared users at most `patience` seconds; after that the block runs beside them. `check` is called repeatedly
        during the wait; its exception ends the wait."""
        outer = None if self.folder is None else _holds.held.get(self.folder)
        if self.folder is None or (outer is not None and outer.alone):
            yield
            return
        self._leave()
        try:
            self._enter(_LockHold(self.folder, alone=True, check=check, patience=patience))
            yield
        finally:
            self._leave()
            if outer is not None:
                self._enter(outer)

    @contextmanager
    def released(self) -> Iterator[None]:
        """Context manager: within the block the thread does not hold the lock; afterwards it holds the lock again in
        the same mode. Does nothing if the thread does not hold the lock."""
        outer = None if self.folder is None else _holds.held.get(self.folder)
        if outer is None:
            yield
            return
        self._leave()
        try:
            yield
        finally:
            self._enter(outer)

    def _enter(self, hold: _LockHold) -> None:
        began = time.perf_counter()
        try:
            hold.take()
        finally:
            with self._counting:
                self._waited += time.perf_counter() - began
        _holds.held[hold.folder] = hold

    def _leave(self) -> None:
        """Releases the lock if this thread holds it."""
        hold = _holds.held.pop(self.folder or "", None)
        if hold is not None:
            try:
                self._settle()
            finally:
                hold.give_back()


@dataclass
class _LockHold:
    """One acquisition of the lock by one thread: exclusive if `alone`, otherwise shared. The other fields are the
    arguments of `DeviceLock.shared` and `exclusive`; `_held` maps the names of the locked files to their
    descriptors."""

    folder: str
    alone: bool
    check: Check
    first: bool = False
    patience: float = FOREVER
    _held: dict[str, int] = field(default_factory=dict)

    def take(self) -> None:
        """Locks the files that this mode of use needs; if that fails, unlocks all of them and raises the error."""
        try:
            if self.alone:
                self._lock("gate", fcntl.LOCK_SH)
                self._lock("turn", fcntl.LOCK_EX)
                self._lock("users", fcntl.LOCK_EX, self.patience)
            elif self.first:
                self._lock("users", fcntl.LOCK_SH)
            else:
                self._lock("gate", fcntl.LOCK_EX)
                self._lock("users", fcntl.LOCK_SH)
                self._unlock("gate")
        except BaseException:
            self.give_back()
            raise

    def give_back(self) -> None:
        for name in reversed(list(self._held)):
            self._unlock(name)

    def _lock(self, name: str, kind: int, patience: float = FOREVER) -> None:
        path = os.path.join(self.folder, f"{name}.lock")
        held = self._held[name] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self.check is no_check and patience == FOREVER:
            fcntl.flock(held, kind)
            return
        until = time.monotonic() + patience
        while not _try(held, kind) and time.monotonic() < until:
            self.check()
            time.sleep(PAUSE_SECONDS)

    def _unlock(self, name: str) -> None:
        held = self._held.pop(name)
        # A child process that another thread starts may briefly have this descriptor too: closing it would not unlock
        # the file.
        fcntl.flock(held, fcntl.LOCK_UN)
        os.close(held)


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _ThreadHolds(threading.local):
    """The device locks that the current thread holds: `held` maps the lock's folder to its acquisition."""

    def __init__(self) -> None:
        self.held: dict[str, _LockHold] = {}


_holds = _ThreadHolds()
