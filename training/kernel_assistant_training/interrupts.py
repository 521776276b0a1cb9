"""Ctrl-C and SIGTERM as a stage of training answers them: docs/training_failures.md."""

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
#: What `signal.signal` takes and gives.
Handler = Callable[[int, FrameType | None], Any] | int | None


class Interrupted(KeyboardInterrupt):
    """Somebody ended this process by signal `number`. `exit_code` is the one that a shell gives for it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Answering:
    """A context manager: within it `answer` is called with the number of such a signal, in the main thread.

    Elsewhere than in the main thread signals cannot be answered, and are not."""

    def __init__(self, answer: Callable[[int], None]) -> None:
        self._answer = answer
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, lambda found, frame: self._answer(found))

    def __exit__(self, *ended: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)


def raised(number: int) -> None:
    """Answers with Interrupted."""
    raise Interrupted(number)


def belong_to_parent() -> None:
    """In a process that `multiprocessing` started: Ctrl-C is its owner's; SIGTERM raises Interrupted, and so does an
    owner that is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: raised(number))
    parent = parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="owner", daemon=True).start()
