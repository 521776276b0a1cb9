"""Handles Ctrl-C and SIGTERM in a stage of training: docs/training_failures.md."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import wait
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: The type of a signal handler.
Handler = Callable[[int, FrameType | None], Any] | int | None


class Interrupted(KeyboardInterrupt):
    """Raised when a signal ends this process. `exit_code` is what a shell reports for a process ended by this
    signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class SignalHandling:
    """A context manager within which SIGINT and SIGTERM call `answer` with the signal's number.

    Has no effect outside of the main thread, where signals cannot be handled.
    """

    def __init__(self, answer: Callable[[int], None]) -> None:
        self._answer = answer
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, lambda received, frame: self._answer(received))

    def __exit__(self, *ended: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)


def raised(number: int) -> None:
    """Raises Interrupted for the signal `number`. For use as an answer to signals."""
    raise Interrupted(number)


def belong_to_parent() -> None:
    """Sets up a process that `multiprocessing` started. The process ignores Ctrl-C, which its parent handles. It raises
    Interrupted at SIGTERM and when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: raised(number))
    parent = parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="owner", daemon=True).start()
