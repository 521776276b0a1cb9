"""Turns on a device that several judges share: what is not timed goes side by side, what is timed goes alone.

A judge spends most of its time on the host. With turns for a timed block alone, and not for all that belongs to a
candidate, others verify and bind meanwhile, and none of their kernels lies within a block.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Turns:
    """Two locks between processes in `folder`; without one nobody shares the device, and nothing is waited for.

    Who wants to be alone holds the gate with all others who do, until it has been: nobody comes in meanwhile, and those
    inside leave once for all of them. Who was alone wants to be beside others next, so that the gate opens again.
    `settle` waits for the device: what was asked of it belongs to the turn. A process that dies
    leaves its turn. For one thread.
    """

    def __init__(self, folder: str | None = None, settle: Callable[[], None] = lambda: None) -> None:
        self._settle, self._depth = settle, 0
        self._gate, self._room = (-1, -1) if folder is None else (_opened(folder, name) for name in ("gate", "room"))

    @contextmanager
    def beside(self) -> Iterator[None]:
        """While others may be at work, but nobody is timed. Within it again it means nothing."""
        self._depth += 1
        if self._depth == 1:
            self._enter(fcntl.LOCK_SH)
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._leave()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While nobody else is at work. Within `beside` that turn is left before, and taken again behind it."""
        if self._depth:
            self._leave()
        self._enter(fcntl.LOCK_EX)
        try:
            yield
        finally:
            self._leave()
            if self._depth:
                self._enter(fcntl.LOCK_SH)

    @property
    def shared(self) -> bool:
        return self._gate >= 0

    def close(self) -> None:
        if self.shared:
            os.close(self._gate)
            os.close(self._room)
            self._gate = self._room = -1

    def _enter(self, kind: int) -> None:
        """`LOCK_SH` to be beside others: through the gate when nobody holds it. `LOCK_EX` to be alone."""
        if not self.shared:
            return
        beside = kind == fcntl.LOCK_SH
        fcntl.flock(self._gate, fcntl.LOCK_EX if beside else fcntl.LOCK_SH)
        fcntl.flock(self._room, kind)
        if beside:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def _leave(self) -> None:
        if self.shared:
            try:
                self._settle()
            finally:
                fcntl.flock(self._room, fcntl.LOCK_UN)
                fcntl.flock(self._gate, fcntl.LOCK_UN)


def _opened(folder: str, name: str) -> int:
    return os.open(Path(folder, f"{name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
