"""Ends the processes of a test that went on after its timeout.

pytest-timeout raises an exception in the test, and `Popen.__exit__` then waits for its process: for ever, if that
process is what hangs. Once it is ended, the test fails as timed out and the run goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

#: Between a test's timeout and the end of its processes.
GRACE_SECONDS = 60.0


@contextmanager
def processes_end_with(item: pytest.Item) -> Iterator[None]:
    """Ends every process below this one if the test takes `GRACE_SECONDS` more than its timeout."""
    marker = item.get_closest_marker("timeout")
    seconds = float(marker.args[0] if marker else item.config.getini("timeout") or 0)
    timer = threading.Timer(seconds + GRACE_SECONDS, end_processes)
    timer.daemon = True
    if seconds:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def end_processes() -> None:
    """Kills every process below this one."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()
