"""The device's bandwidths, measured while nobody else works, before several processes judge on it."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from kernel_assistant.environment.ceilings import keep_ceilings, known_ceilings, measure_ceilings
from kernel_assistant.environment.worker_client import Worker
from kernel_assistant.errors import MissingError
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.detect import detect

TRIES = 3
#: Workers number GPUs as the driver does.
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def devices(target: str) -> list[DeviceFacts]:
    """All GPUs that are visible, or the CPU. Raises MissingError where there is no GPU."""
    found = cuda.gpus() if target == "cuda" else [detect(target)]
    if not found:
        raise MissingError("no NVIDIA GPU was found", "use --target cpu, or check nvidia-smi")
    return found


def measure_device(target: str, out: Path) -> DeviceFacts:
    """The device with its bandwidths, kept in `out`; without them, and so without floors, on a machine that is never
    quiet: too low a ceiling would call honest kernels impossible."""
    device = devices(target)[0]
    found = known_ceilings(device, out)
    if found is not None:
        return found
    cancel, worker = threading.Event(), Worker(sys.executable, log=out / "worker-device.log", env=ORDER)
    worker.start(cancel)
    try:
        tries = (measure_ceilings(device, worker, cancel) for _ in range(TRIES))
        found = next((measured for measured, quiet in tries if quiet), device)
    finally:
        worker.kill()
    keep_ceilings(found, out)
    return found


def known_device(target: str, out: Path, part: int) -> DeviceFacts:
    """That of process number `part`, which have the GPUs in turn, as one of the kind was measured for `out`."""
    found = devices(target)
    device = found[part % len(found)]
    return known_ceilings(device, out) or device
