"""An event whose `set` may be called in a signal handler."""

from __future__ import annotations

import queue
import threading
import time


class SignalSafeEvent(threading.Event):
    """A `threading.Event` whose `set` may be called in a signal handler.

    The handler runs in the main thread. If that thread was interrupted inside `threading.Event.wait`, where it holds
    the event's lock, `threading.Event.set` would wait for ever. Here `set` uses `SimpleQueue.put`, which is reentrant
    (Python's documentation of `queue`).
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._waking: queue.SimpleQueue[None] = queue.SimpleQueue()

    def is_set(self) -> bool:
        """Whether `set` was called since the last `clear`."""
        return self._is_set

    def set(self) -> None:
        """Sets the event and wakes every thread that waits for it."""
        self._is_set = True
        self._waking.put(None)

    def clear(self) -> None:
        """Resets the event, so that later calls of `wait` wait again."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Waits at most `timeout` seconds. Returns whether the event is set."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.is_set():
            try:
                self._waking.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return self.is_set()
            if self.is_set():
                # The next thread that waits is woken by this one.
                self._waking.put(None)
        return True
