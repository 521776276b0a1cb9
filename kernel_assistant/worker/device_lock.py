"""Shared or exclusive use of a device, between threads and processes.

What is timed wants the device alone; what verifies, builds or writes text may go side by side. A judge spends most of
its time on the host, so it takes the device for each timed block or round, and not for a whole candidate: others verify
meanwhile, and none of their kernels runs within a block.

Three files in one folder are locked with `flock`, which the system undoes when a process dies:

- `users.lock`: shared by all that use the device, exclusive for the one that is alone;
- `turn.lock`: for those that want to be alone, one at a time;
- `gate.lock`: held by all that want to be alone, from before they wait until they have been. Nobody else comes in
  meanwhile, and those inside leave once for all of them.
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
#: Between two attempts of a wait that can be cancelled.
PAUSE_SECONDS = 0.002

#: Called now and then by whoever waits; what it raises ends the wait.
Check = Callable[[], None]


def no_check() -> None:
    """Of a wait that nobody cancels."""


class DeviceLock:
    """The lock of the device that `folder` stands for. Without a folder nobody shares the device, and nothing waits.

    Each thread has a turn of its own, whichever object it took it with. Inside a turn another one of the same kind
    changes nothing; `exclusive` inside `shared` gives that turn up and takes it again afterwards. `settle` is called
    before a turn ends: it waits until the device has done what was asked of it.
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
        """Seconds that this object's threads have waited for their turns, in sum."""
        return self._waited

    @contextmanager
    def shared(self, check: Check = no_check, *, first: bool = False) -> Iterator[None]:
        """Beside others, while nobody is alone. It lets those pass that wait to be alone, unless it comes `first`."""
        if self.folder is None or self.folder in _turns.held:
            yield
            return
        self._enter(_Turn(self.folder, alone=False, check=check, first=first))
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def exclusive(self, check: Check = no_check, *, patience: float = FOREVER) -> Iterator[None]:
        """Alone. Who shares the device is waited for `patience` seconds at most, who is alone without a limit."""
        left = None if self.folder is None else _turns.held.get(self.folder)
        if self.folder is None or (left is not None and left.alone):
            yield
            return
        self._leave()
        try:
            self._enter(_Turn(self.folder, alone=True, check=check, patience=patience))
            yield
        finally:
            self._leave()
            if left is not None:
                self._enter(left)

    def _enter(self, turn: _Turn) -> None:
        began = time.perf_counter()
        try:
            turn.take()
        finally:
            with self._counting:
                self._waited += time.perf_counter() - began
        _turns.held[turn.folder] = turn

    def _leave(self) -> None:
        """Nothing without a turn."""
        turn = _turns.held.pop(self.folder or "", None)
        if turn is not None:
            try:
                self._settle()
            finally:
                turn.give_back()


@dataclass
class _Turn:
    """What one thread holds."""

    folder: str
    alone: bool
    check: Check
    first: bool = False
    patience: float = FOREVER
    _held: dict[str, int] = field(default_factory=dict)

    def take(self) -> None:
        """Holds nothing where it fails."""
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
        # A child that another thread is about to start may have this descriptor for a moment: closing is not enough.
        fcntl.flock(held, fcntl.LOCK_UN)
        os.close(held)


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Turns(threading.local):
    """The turns of this thread, by folder."""

    def __init__(self) -> None:
        self.held: dict[str, _Turn] = {}


_turns = _Turns()
