"""Lets tests of one run take turns (pytest-xdist): some of them must run alone."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest


def is_alone(item: pytest.Item) -> bool:
    """Whether a test must run alone."""
    return item.get_closest_marker("alone") is not None


class Turns:
    """The turns of one process. Successive tests that must run alone wait only once."""

    def __init__(self) -> None:
        self._mine, self._goes_on = ExitStack(), False

    @contextmanager
    def of(self, item: pytest.Item, following: pytest.Item | None) -> Iterator[None]:
        """Waits until the test may run: alone, or together with others that need not be alone."""
        if not self._goes_on:
            self._mine.enter_context(_turn(alone=is_alone(item)))
        try:
            yield
        finally:
            self._goes_on = following is not None and is_alone(item) and is_alone(following)
            if not self._goes_on:
                self._mine.close()

    def finish(self) -> None:
        """Called at the end of a run, by the process that started the others."""
        for name in ("gate", "turn"):
            _lock(name, os.getpid()).unlink(missing_ok=True)


@contextmanager
def _turn(*, alone: bool) -> Iterator[None]:
    """A process that waits to be alone keeps the gate, so that other processes do not overtake it."""
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
