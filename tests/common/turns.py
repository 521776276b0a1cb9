"""Tests of one run beside each other (pytest-xdist), of which some want to be alone."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest


def is_alone(item: pytest.Item) -> bool:
    """Whether a test wants no other beside it."""
    return item.get_closest_marker("alone") is not None


class Turns:
    """Of one process. Tests that want to be alone and follow each other wait once."""

    def __init__(self) -> None:
        self._mine, self._goes_on = ExitStack(), False

    @contextmanager
    def of(self, item: pytest.Item, following: pytest.Item | None) -> Iterator[None]:
        """Waits until the test may run: alone, or beside others that need not be."""
        if not self._goes_on:
            self._mine.enter_context(_turn(alone=is_alone(item)))
        try:
            yield
        finally:
            self._goes_on = following is not None and is_alone(item) and is_alone(following)
            if not self._goes_on:
                self._mine.close()

    def finish(self) -> None:
        """At the end of a run, by the process that the others are children of."""
        for name in ("gate", "turn"):
            _lock(name, os.getpid()).unlink(missing_ok=True)


@contextmanager
def _turn(*, alone: bool) -> Iterator[None]:
    """Whoever waits for quiet keeps the gate, so that others do not go before."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    with open(_lock("gate", os.getppid()), "wb") as gate, open(_lock("turn", os.getppid()), "wb") as turn:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(turn, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield


def _lock(name: str, run: int) -> Path:
    return Path(tempfile.gettempdir(), f"ka-tests-{run}.{name}")
