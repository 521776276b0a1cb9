"""Taking turns on a device: a lock between processes."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from types import TracebackType
from typing import Self


class DeviceTurn:
    """A context manager that one process at a time is in; `path` is made. Not for threads of one process.

    `waited` are the seconds until the turn came, all together.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        self.waited = 0.0

    def __enter__(self) -> Self:
        began = time.perf_counter()
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.waited += time.perf_counter() - began
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)
