"""Compiles the user's module with torch.compile in a second process while the search runs.

The judge finds the result in inductor's cache folder, so that its own compilation takes a fraction of the time, and a
short budget is not spent on it. A failure here is not reported: the judge then compiles itself, and reports why it
fails.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Any

from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.records import KernelTask
from kernel_assistant.records.codec import to_builtins

MOST_SECONDS = 600.0


class CompileAhead:
    """The process that runs torch.compile for one task. It is started by the constructor."""

    def __init__(self, like: WorkerClient, task: KernelTask, device: int) -> None:
        self._params = {"task": to_builtins(task), "device": device}
        self._stop = threading.Event()
        self._worker = like.another()
        self._pool = ThreadPoolExecutor(1, "compile-ahead")
        self._compiling: Future[Any] = self._pool.submit(self._compile)

    def _compile(self) -> None:
        with suppress(KernelAssistantError):
            self._worker.start(self._stop)
            self._worker.call("compile_ahead", self._params, timeout=MOST_SECONDS, cancel=self._stop)
        self._worker.kill()

    def wait(self, until: float) -> bool:
        """Waits for the end of the process, at most until the time `until` (of `time.monotonic`). Returns whether it
        has ended."""
        wait([self._compiling], max(until - time.monotonic(), 0.0))
        return self._compiling.done()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Pauses the process during the `with` block, so that it does not disturb a measurement. Does nothing if the
        process has ended."""
        if self._compiling.done():
            yield
            return
        with self._worker.paused():
            yield

    def end(self) -> None:
        """Kills the process if it is still compiling, and frees the thread that waits for it."""
        self._stop.set()
        self._worker.kill()
        self._pool.shutdown()
