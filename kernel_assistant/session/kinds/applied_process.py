"""Checks an applied class in a process that loads it as the user's program does; the judge works in another process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from kernel_assistant.environment.worker_client import WorkerClient

CHECK_SECONDS = 600.0


class AppliedProcess:
    """Loads one applied class in a worker. `begin` opens the class in a thread, while the judge works; `check` waits
    until it is open, then loads and checks the kernels."""

    def __init__(
        self, worker: WorkerClient, params: dict[str, Any], cancel: threading.Event, pool: ThreadPoolExecutor
    ) -> None:
        self.worker, self._params, self._cancel, self._pool = worker, params, cancel, pool
        self._opening: Future[None] | None = None

    def begin(self) -> None:
        """Starts to open the class; a second call does nothing."""
        self._opening = self._opening or self._pool.submit(self._open)

    def wait(self) -> None:
        """Waits until the class is open. Raises the exception that opening raised, if any."""
        self.begin()
        assert self._opening is not None
        self._opening.result()

    def check(self, *, timing: bool) -> dict[str, Any]:
        """Loads the kernels and makes one call; if `timing` is True, also times it against the original. Returns the
        worker's answer: a dict with `equal`, `kernel` (whether the kernels ran), `warnings`, `fallbacks` and `row` (the
        times, or None). Raises WorkerError, UsageError or Cancelled."""
        self.wait()
        return self.worker.call("check_applied", {"timing": timing}, timeout=CHECK_SECONDS, cancel=self._cancel)

    def end(self) -> None:
        """Closes the class. Keeps the worker for later jobs, except one that is still opening the class: that one is
        killed."""
        if self._opening is None:
            return
        if not self._opening.done():
            self.worker.kill()
        self._opening.exception()
        self.worker.release()

    def _open(self) -> None:
        if not self.worker.hello:
            self.worker.start(self._cancel)
        self.worker.call("open_applied", self._params, timeout=CHECK_SECONDS, cancel=self._cancel)


@contextmanager
def plain_process(worker: WorkerClient, params: dict[str, Any], cancel: threading.Event) -> Iterator[AppliedProcess]:
    """Yields an AppliedProcess that uses `worker`; ends it after the `with` block."""
    with ThreadPoolExecutor(1, "plain") as pool:
        process = AppliedProcess(worker, params, cancel, pool)
        try:
            yield process
        finally:
            process.end()
