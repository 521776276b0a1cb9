"""Measures the device's memory bandwidths before several workers use it. From them follows the roofline, the lower
bound of a kernel's run time that prompts and evaluations state."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path

import msgspec

from kernel_assistant.environment.ceilings import keep_ceilings, known_ceilings, measure_ceilings
from kernel_assistant.environment.device_locks import PATIENCE_SECONDS
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import Cancelled
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.worker.device_lock import DeviceLock

TRIES = 3


def folder_with_bandwidth(
    device: DeviceFacts,
    worker: WorkerClient,
    cache: Path,
    own: Path,
    cancel: threading.Event,
    lock: DeviceLock | None = None,
) -> Path:
    """Returns the folder that has the device's bandwidths: `cache` or `own`. Unknown bandwidths are measured and
    written to `cache`. If other programs disturb all measurements, the best of them is written to `own` instead, so
    that other runs do not use it. With `lock`, one process measures and the other processes wait for its result. Raises
    Cancelled when `cancel` is set."""

    def known() -> Path | None:
        return next((folder for folder in (cache, own) if known_ceilings(device, folder) is not None), None)

    def stop_if_cancelled() -> None:
        if cancel.is_set():
            raise Cancelled("cancelled while it waited for the device")

    if (folder := known()) is not None:
        return folder
    # Before the lock is taken, so that the workers of several processes start at the same time.
    if not worker.hello:
        worker.start(cancel)
    with lock.exclusive(stop_if_cancelled, patience=PATIENCE_SECONDS) if lock else nullcontext():
        if (folder := known()) is not None:
            return folder
        tries = []
        for _ in range(TRIES):
            measured, quiet = measure_ceilings(device, worker, cancel)
            if quiet:
                keep_ceilings(measured, cache)
                return cache
            tries.append(measured)
        # Other work on the machine only lowers bandwidths.
        best = {name: max(getattr(one, name) for one in tries) for name in ("copy_bandwidth", "read_bandwidth")}
        keep_ceilings(msgspec.structs.replace(device, **best), own)
        return own
