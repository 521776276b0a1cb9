"""Pauses the processes of a worker while something else is measured."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kernel_assistant.environment.worker_client import WorkerClient


@contextmanager
def paused(worker: WorkerClient) -> Iterator[None]:
    """Stops all processes of a worker that still exist during the block."""
    _signal(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(worker, signal.SIGCONT)


def _signal(worker: WorkerClient, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(worker.process.pid, number)
