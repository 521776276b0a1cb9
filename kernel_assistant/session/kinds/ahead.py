"""Lets a second process import the user's file while the search runs, because the edited file is timed in that process
at the end.

The process is not a fork of the judge, because the judge has another allocator. If the import fails, nothing is
reported: the file is imported again when it is timed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress

from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.stage_messages import OPEN_SECONDS
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import MissingError, WorkerError
from kernel_assistant.records import KernelTask
from kernel_assistant.records.codec import to_builtins

#: A faster import is not done ahead: it is not worth the memory of another process during the search.
SLOW_SECONDS = 1.0


class Ahead:
    """The process that imports the user's file for one job. `begin` starts the import; `take` waits for its end and
    gives the process to the caller."""

    def __init__(self, python: str, cancel: threading.Event) -> None:
        self._python, self._cancel = python, cancel
        self._pool = ThreadPoolExecutor(1, "ahead")
        self._worker: WorkerClient | None = None
        self._importing: Future[object] | None = None

    def begin(self, task: KernelTask, seconds: float = float("inf")) -> None:
        """Starts a process, waits at most `seconds` until it has imported torch, and then lets it import the file of
        `task` while this function returns. It waits, because importing torch would disturb measurements."""
        worker = self._worker = WorkerClient(self._python, measuring={})
        worker.start(self._cancel, seconds)
        params = {"task": to_builtins(task)}
        self._importing = self._pool.submit(
            worker.call, "import_file", params, timeout=OPEN_SECONDS, cancel=self._cancel
        )

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Pauses an unfinished import during the `with` block, in which something is measured."""
        worker = self._worker
        if worker is None or self._importing is None or self._importing.done():
            yield
            return
        with worker.paused():
            yield

    def take(self, seconds: float) -> WorkerClient | None:
        """Waits at most `seconds` for the import. Returns the process, which the caller must then close; None if the
        import was not started, failed or takes longer."""
        worker, importing = self._worker, self._importing
        if worker is None or importing is None:
            return None
        self._worker = self._importing = None
        wait([importing], None if seconds == float("inf") else max(seconds, 0.0))
        if importing.done() and importing.exception() is None:
            return worker
        worker.kill()
        return None

    def end(self) -> None:
        """Kills the process, unless it was taken."""
        if self._worker is not None:
            self._worker.kill()
        self._pool.shutdown()


@contextmanager
def imported_ahead(environment: Environment, task: KernelTask, cancel: threading.Event) -> Iterator[Ahead]:
    """Yields an `Ahead` that imports the file during the `with` block. It does so only if the judge's import took
    SLOW_SECONDS or more, but less than the time for the search; otherwise its `take` returns None. The import pauses
    while `environment` measures."""
    ahead = Ahead(environment.worker.python, cancel)
    try:
        seconds = environment.clock.search_seconds()
        if SLOW_SECONDS <= environment.facts.get("import_seconds", 0.0) < seconds:
            environment.pausing.append(ahead.quiet)
            with suppress(MissingError, WorkerError):
                ahead.begin(task, seconds)
        yield ahead
    finally:
        if ahead.quiet in environment.pausing:
            environment.pausing.remove(ahead.quiet)
        ahead.end()
