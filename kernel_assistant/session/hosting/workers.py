"""Keeps one worker (a process that runs the user's module with torch) for each device alive for a while after its job,
because importing torch takes seconds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_assistant.environment.measuring import MEASURING
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.source.interpreter import stamp
from kernel_assistant.targets.base import DeviceFacts

_log = logging.getLogger(__name__)
_MAX_LOG = 4 << 20


@dataclass(frozen=True)
class _Idle:
    worker: WorkerClient
    python: str
    since: float
    packages: int
    loaded: frozenset[str] = frozenset()


class WorkerPool:
    """Lends workers. A worker belongs to a device and an interpreter. For each device, at most one worker for
    measurements (`lend`) and one plain worker (`lend_plain`) are kept while idle, because idle workers hold GPU memory.

    Each device is used by one job at a time, so no two jobs need the same worker. A worker that was started before a
    package was installed, upgraded or removed is not lent again, since it has the old version imported. A worker in
    which an import failed is not lent again either: the failed import may have changed state, such as a library's
    registry, so that it would fail again.
    """

    def __init__(self, idle_seconds: float, log: Path) -> None:
        self._idle_seconds = idle_seconds
        self._log = log
        self._lock = threading.Lock()
        self._idle: dict[str, _Idle] = {}
        self._closed = threading.Event()
        threading.Thread(target=self._expire, name="worker-expiry", daemon=True).start()

    @contextmanager
    def lend(self, python: str, device: DeviceFacts) -> Iterator[WorkerClient]:
        """Lends a worker for measurements during the `with` block, and keeps it afterwards if it is alive. `python` is
        the path of the user's interpreter. Raises MissingError if no worker can be started."""
        lane = f"{device.target}:{device.index}"
        item = self._take(lane, python, "") or self._start(python, MEASURING)
        try:
            yield item.worker
        finally:
            self._keep(lane, item)

    @contextmanager
    def lend_plain(self, python: str, device: DeviceFacts, kernels: str) -> Iterator[WorkerClient]:
        """Lends a worker with PyTorch's default allocator, which loads generated code as the user's program does. A
        worker that has loaded kernels from the folder `kernels` before is not used, because a process loads each path
        only once."""
        lane = f"plain {device.target}:{device.index}"
        item = self._take(lane, python, kernels) or self._start(python, {})
        try:
            yield item.worker
        finally:
            self._keep(lane, replace(item, loaded=item.loaded | {kernels}))

    def close(self) -> None:
        """Ends idle workers; a lent worker ends when it is returned."""
        self._closed.set()
        with self._lock:
            idle = list(self._idle.values())
            self._idle.clear()
        for item in idle:
            item.worker.kill()

    def _take(self, lane: str, python: str, kernels: str) -> _Idle | None:
        with self._lock:
            item = self._idle.pop(lane, None)
        if item is None:
            return None
        same = item.python == python and item.packages == _packages(python)
        if same and item.worker.alive and kernels not in item.loaded:
            return item
        item.worker.kill()
        return None

    def _start(self, python: str, measuring: dict[str, str]) -> _Idle:
        if self._log.exists() and self._log.stat().st_size > _MAX_LOG:
            self._log.replace(self._log.with_suffix(".log.old"))
        # Devices are numbered in the driver's order, by which they were chosen.
        packages = _packages(python)
        worker = WorkerClient(
            python,
            log=self._log,
            env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
            measuring=measuring,
            template_seconds=self._idle_seconds,
        )
        return _Idle(worker, python, time.monotonic(), packages)

    def _keep(self, lane: str, item: _Idle) -> None:
        if self._closed.is_set() or item.worker.half_imported or not item.worker.alive:
            item.worker.kill()
            return
        with self._lock:
            self._idle[lane] = replace(item, since=time.monotonic())

    def _expire(self) -> None:
        while not self._closed.wait(min(1.0, self._idle_seconds / 4)):
            now = time.monotonic()
            with self._lock:
                old = [lane for lane, item in self._idle.items() if now - item.since > self._idle_seconds]
                items = [self._idle.pop(lane) for lane in old]
            for item in items:
                _log.info("worker %d was idle and ends", item.worker.process.pid)
                item.worker.close()


def _packages(python: str) -> int:
    try:
        return stamp(Path(python))
    except OSError:
        return 0
