"""A lock on a folder, so that two processes, such as editors, do not apply or undo in the same folder at the same
time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn_in(folder: Path) -> Iterator[None]:
    """Holds an exclusive lock on `folder` during the `with` block, against other processes and threads. Creates no
    file.

    No lock is held if the file system has no locks (some network file systems) or the folder cannot be read; in the
    latter case writing to the folder fails later.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            pass
        yield
    finally:
        os.close(handle)
