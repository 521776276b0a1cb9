"""Waiting for a lock or a place, as long as whoever waits is wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kernel_assistant.errors import Cancelled

#: Between two looks at whether it is wanted still.
LOOK_SECONDS = 0.05


@contextmanager
def turn(place: threading.Lock | threading.Semaphore, cancelled: Callable[[], bool], why: str) -> Iterator[None]:
    """Holds `place`. Raises Cancelled while it waits, which was for `why`."""
    while not place.acquire(timeout=LOOK_SECONDS):
        if cancelled():
            raise Cancelled(f"cancelled while {why}")
    try:
        yield
    finally:
        place.release()
