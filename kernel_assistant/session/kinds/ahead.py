"""A process that imports the user's file while the search runs, and in which the edited file is timed at the end.

The process is not a fork of the judge, because the judge has another allocator. If the import fails here, nothing is
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
    """The importing process of one job. `begin` starts the import; `take` waits for it and hands the process over."""

    def __init__(self, python: str, cancel: threading.Event) -> None:
        self._python, self._cancel = python, cancel
        self._pool = ThreadPoolExecutor(1, "ahead")
        self._worker: WorkerClient | None = None
        self._importing: Future[object] | None = None

    def begin(self, task: KernelTask, seconds: float = float("inf")) -> None:
        """Starts to import the file of `task` in a thread. Waits for the import of torch, which uses the processor, for
        at most `seconds`."""
        worker = self._worker = WorkerClient(self._python, measuring={})
        worker.start(self._cancel, seconds)
        params = {"task": to_builtins(task)}
        self._importing = self._pool.submit(
            worker.call, "import_file", params, timeout=OPEN_SECONDS, cancel=self._cancel
        )

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Pauses an import in progress during the block, in which something is measured."""
        worker = self._worker
        if worker is None or self._importing is None or self._importing.done():
            yield
            return
        with worker.paused():
            yield

    def take(self, seconds: float) -> WorkerClient | None:
        """Returns the process, which the caller then owns; None if it does not import the file within `seconds`."""
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
    """Imports the file in a second process during the block, if the judge's import took at least SLOW_SECONDS and less
    than the time for the search. The import pauses while `environment` measures."""
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
