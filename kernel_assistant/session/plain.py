"""The process beside the judge that loads an applied class as the user's program does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from kernel_assistant.environment.worker_client import Worker

CHECK_SECONDS = 600.0


class PlainProcess:
    """`begin` has it open the class, in a thread while the judge works; `check` waits for that and goes on with the
    kernels, which it does not load before."""

    def __init__(
        self, worker: Worker, params: dict[str, Any], cancel: threading.Event, pool: ThreadPoolExecutor
    ) -> None:
        self.worker, self._params, self._cancel, self._pool = worker, params, cancel, pool
        self._opening: Future[None] | None = None

    def begin(self) -> None:
        """Start to open it; a second time does nothing."""
        self._opening = self._opening or self._pool.submit(self._open)

    def wait(self) -> None:
        """Until it is open. Raises what opening raised."""
        self.begin()
        assert self._opening is not None
        self._opening.result()

    def check(self, *, timing: bool) -> dict[str, Any]:
        """What the worker's `check_applied` says. Raises WorkerError, UsageError or Cancelled."""
        self.wait()
        return self.worker.call("check_applied", {"timing": timing}, timeout=CHECK_SECONDS, cancel=self._cancel)

    def end(self) -> None:
        """Warm and with nothing open; ended where it is still busy opening, or opening failed."""
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
def plain_process(worker: Worker, params: dict[str, Any], cancel: threading.Event) -> Iterator[PlainProcess]:
    """For the block."""
    with ThreadPoolExecutor(1, "plain") as pool:
        process = PlainProcess(worker, params, cancel, pool)
        try:
            yield process
        finally:
            process.end()
