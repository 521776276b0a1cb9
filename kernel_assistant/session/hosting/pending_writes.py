"""Repeats writes that failed because the disk was full, so that neither results nor the ends of jobs are lost.

Pending writes are kept in the memory of this process: if the host ends before they succeed, they are lost, and the jobs
count as interrupted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kernel_assistant.errors import StoreError

EVERY_SECONDS = 2.0
_log = logging.getLogger(__name__)

Write = Callable[[], object]


class PendingWrites:
    """Runs writes in order. A write is a function that raises StoreError while the disk is full."""

    def __init__(self, every: float = EVERY_SECONDS) -> None:
        self._every = every
        self._waiting: list[Write] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def write(self, write: Write) -> StoreError | None:
        """Calls `write` now; if it fails or earlier writes are still pending, calls it later in another thread. Returns
        None if `write` has succeeded, else the error."""
        with self._lock:
            if not self._waiting:
                try:
                    write()
                except StoreError as error:
                    failure = error
                else:
                    return None
            else:
                failure = StoreError("earlier writes wait for room on the disk", "free disk space")
            self._waiting.append(write)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._go_on, name="unwritten", daemon=True)
                self._thread.start()
        return failure

    def close(self) -> None:
        """Stops the thread, and tries the pending writes a last time."""
        self._closed.set()
        self._try()

    def _go_on(self) -> None:
        while not self._closed.wait(self._every):
            if self._try():
                return

    def _try(self) -> bool:
        """Tries the waiting writes. Returns True if all succeeded."""
        with self._lock:
            try:
                while self._waiting:
                    self._waiting[0]()
                    del self._waiting[0]
            except StoreError as error:
                _log.info("still not written: %s", error.cause)
                return False
            self._thread = None
            return True
