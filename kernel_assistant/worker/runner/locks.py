"""A lock that a forked child can take even if another thread of the parent held it during the fork."""

from __future__ import annotations

import os
import threading
import weakref


class ForkSafeLock:
    """A mutex for `with` statements. A forked child gets a new, free one, even if a thread of the parent held it."""

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
