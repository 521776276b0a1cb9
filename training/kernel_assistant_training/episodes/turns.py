"""Taking turns on a device: a lock between processes."""

from __future__ import annotations

import fcntl
from pathlib import Path
from types import TracebackType
from typing import Self


class DeviceTurn:
    """A context manager that one process at a time is in; `path` is made. Not for threads of one process."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")

    def __enter__(self) -> Self:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)
