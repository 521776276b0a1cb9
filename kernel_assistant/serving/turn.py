"""Waits for a lock or a semaphore until cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kernel_assistant.errors import Cancelled

#: Seconds between two checks for a cancel.
CHECK_SECONDS = 0.05


@contextmanager
def turn(slot: threading.Lock | threading.Semaphore, cancelled: Callable[[], bool], why: str) -> Iterator[None]:
    """Waits until the lock or semaphore `slot` is free, and holds it during the `with` block. Raises Cancelled if
    `cancelled()` becomes true during the wait; `why` says in words what it waits for, such as "another conversation was
    writing"."""
    while not slot.acquire(timeout=CHECK_SECONDS):
        if cancelled():
            raise Cancelled(f"cancelled while {why}")
    try:
        yield
    finally:
        slot.release()
