"""The device's bandwidths, measured while nobody else works, before several processes judge on it."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from kernel_assistant.environment.ceilings import keep_ceilings, known_ceilings, measure_ceilings
from kernel_assistant.environment.worker_client import Worker
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.detect import detect

TRIES = 3


def measure_device(target: str, out: Path) -> DeviceFacts:
    """The device with its bandwidths, kept in `out`; without them, and so without floors, on a machine that is never
    quiet: too low a ceiling would call honest kernels impossible."""
    device = detect(target)
    found = known_ceilings(device, out)
    if found is not None:
        return found
    cancel, worker = threading.Event(), Worker(sys.executable, log=out / "worker-device.log")
    worker.start(cancel)
    try:
        tries = (measure_ceilings(device, worker, cancel) for _ in range(TRIES))
        found = next((measured for measured, quiet in tries if quiet), device)
    finally:
        worker.kill()
    keep_ceilings(found, out)
    return found


def known_device(target: str, out: Path) -> DeviceFacts:
    """As it was measured for `out`."""
    device = detect(target)
    return known_ceilings(device, out) or device
