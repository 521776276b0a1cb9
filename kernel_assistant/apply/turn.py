"""One at a time in a folder: two editors may apply and undo in it at the same moment."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn_in(folder: Path) -> Iterator[None]:
    """For the block alone among processes and threads. Leaves nothing behind; without locks where there are none (some
    network file systems) or where the folder cannot be read, which is found out by whoever writes."""
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
