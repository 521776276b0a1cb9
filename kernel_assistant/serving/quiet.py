"""On the CPU a model that writes and a kernel that is timed would slow each other down: they take turns.

A kernel of 1.6 ms on two cores took 3.4 to 3.7 ms beside eight conversations with the embedded model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from kernel_assistant.errors import Cancelled

#: For stretches of text that have begun. One takes less than a second; an engine that hangs holds nobody up.
PATIENCE_SECONDS = 5.0
#: Between two looks at whether whoever waits to write is wanted still.
LOOK_SECONDS = 0.1


class Quiet:
    """A context manager for what is timed: while somebody is in it, or waits to be, no stretch of text begins."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._writing = self._timing = 0

    @property
    def waited_for(self) -> bool:
        """Whether something is timed, or is about to be."""
        return self._timing > 0

    def __enter__(self) -> Self:
        with self._changed:
            self._timing += 1
            self._changed.wait_for(lambda: not self._writing, PATIENCE_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._timing -= 1
            self._changed.notify_all()

    @contextmanager
    def writing(self, cancelled: Callable[[], bool]) -> Iterator[None]:
        """A stretch of text; any number at once. Raises Cancelled while it waits for what is timed."""
        with self._changed:
            while self.waited_for:
                if cancelled():
                    raise Cancelled("cancelled while a kernel was timed")
                self._changed.wait(LOOK_SECONDS)
            self._writing += 1
        try:
            yield
        finally:
            with self._changed:
                self._writing -= 1
                self._changed.notify_all()


#: Of the machine that this process runs on.
PROCESSOR = Quiet()
