"""A lock that a forked child can use although another thread of the parent held it."""

from __future__ import annotations

import os
import threading
import weakref


class ForkSafeLock:
    """A mutex that is replaced by a new one in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        reference = weakref.ref(self)

        def renew() -> None:
            alive = reference()
            if alive is not None:
                alive._lock = threading.Lock()

        os.register_at_fork(after_in_child=renew)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()
