"""Interrupts work of this process that takes too long, so that earlier measurements are not lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class LimitReached(BaseException):
    """The time limit of `within` has passed. It is a BaseException, because compilers catch every Exception and go
    on."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Context manager that raises LimitReached inside the block as soon as `seconds` are over; at once if `seconds` is
    not positive. Threads other than the main one get no signals: there, the limit is checked only at the beginning."""
    if seconds <= 0:
        raise LimitReached
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise LimitReached

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
