"""On the CPU target compilers and what is timed would disturb each other: they take turns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from kernel_assistant.environment.compile import Binary, CompileFailure
from kernel_assistant_training.episodes.ahead import AheadCompiler


class Quiet:
    """A context manager for what is timed: one thread at a time is in it, and nobody is `building` meanwhile.

    Builders go first: they are many, and what is timed waits for them anyway.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._building, self._timing = 0, False

    def __enter__(self) -> Self:
        with self._changed:
            self._changed.wait_for(lambda: not self._timing and not self._building)
            self._timing = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._timing = False
            self._changed.notify_all()

    @contextmanager
    def building(self) -> Iterator[None]:
        """Any number of threads at once."""
        with self._changed:
            self._changed.wait_for(lambda: not self._timing)
            self._building += 1
        try:
            yield
        finally:
            with self._changed:
                self._building -= 1
                self._changed.notify_all()


class QuietCompiler(AheadCompiler):
    """One that waits while something is timed, if it is given a `quiet`."""

    quiet: Quiet | None = None

    def _compile(self, files: dict[str, str], key: str) -> Binary | CompileFailure:
        if self.quiet is None:
            return super()._compile(files, key)
        with self.quiet.building():
            return super()._compile(files, key)
