"""Measures the device's bandwidths before several workers use it, because prompts and observations state the
roofline."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
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
    """The folder that has the device's bandwidths. They are measured if they are unknown, and written to `cache`. If
    the machine is never quiet, the best of several measurements is written to `own` instead, so that other runs do not
    use it. With `lock` one process measures and the others wait for it.
    """
    known = _folder_of(device, cache, own)
    if known is not None:
        return known
    # Before the lock is taken, so that the workers of several processes start at the same time.
    if not worker.hello:
        worker.start(cancel)
    with lock.exclusive(partial(_stop_if, cancel), patience=PATIENCE_SECONDS) if lock else nullcontext():
        return _folder_of(device, cache, own) or _measured(device, worker, cache, own, cancel)


def _folder_of(device: DeviceFacts, *folders: Path) -> Path | None:
    return next((folder for folder in folders if known_ceilings(device, folder) is not None), None)


def _measured(device: DeviceFacts, worker: WorkerClient, cache: Path, own: Path, cancel: threading.Event) -> Path:
    tries = []
    for _ in range(TRIES):
        measured, quiet = measure_ceilings(device, worker, cancel)
        if quiet:
            keep_ceilings(measured, cache)
            return cache
        tries.append(measured)
    keep_ceilings(best_of(device, tries), own)
    return own


def _stop_if(cancel: threading.Event) -> None:
    if cancel.is_set():
        raise Cancelled("cancelled while it waited for the device")


def best_of(device: DeviceFacts, tries: Sequence[DeviceFacts]) -> DeviceFacts:
    """The device with the highest bandwidths of several measurements: other work on the machine only lowers them."""
    return msgspec.structs.replace(
        device,
        copy_bandwidth=max(one.copy_bandwidth for one in tries),
        read_bandwidth=max(one.read_bandwidth for one in tries),
    )
