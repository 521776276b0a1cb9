"""Work that is ended after a time."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest

from kernel_assistant.worker.process.time_limit import LimitReached, within


def _swallows() -> None:
    """A compiler that goes on after any Exception."""
    while True:
        with suppress(Exception):
            time.sleep(3600)


def test_what_takes_too_long_ends_even_where_exceptions_are_caught() -> None:
    with pytest.raises(LimitReached), within(0.05):
        _swallows()


def test_no_time_at_all() -> None:
    with pytest.raises(LimitReached), within(-1.0):
        raise AssertionError


def test_a_limit_does_not_outlive_its_block() -> None:
    with suppress(LimitReached), within(0.01):
        _swallows()
    with within(3600):
        pass
    time.sleep(0.05)


def test_a_thread_has_no_timer() -> None:
    seen: list[str] = []

    def work() -> None:
        with within(3600):
            seen.append("worked")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ["worked"]
