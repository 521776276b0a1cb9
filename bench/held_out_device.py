"""Measures the device's bandwidths before several processes judge on it."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from kernel_assistant.environment.ceilings import keep_ceilings, known_ceilings, measure_ceilings
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import MissingError
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.detect import detect

TRIES = 3
#: Makes workers number GPUs as the driver does.
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def devices(target: str) -> list[DeviceFacts]:
    """All visible GPUs, or the CPU. Raises MissingError if there is no GPU."""
    facts = cuda.gpus() if target == "cuda" else [detect(target)]
    if not facts:
        raise MissingError("no NVIDIA GPU was found", "use --target cpu, or check nvidia-smi")
    return facts


def measure_device(target: str, out: Path) -> DeviceFacts:
    """The device with its bandwidths, which are stored in `out`. On a machine that is never quiet it has no bandwidths,
    and so no roofline, because one that is too low would reject honest kernels as impossible."""
    device = devices(target)[0]
    facts = known_ceilings(device, out)
    if facts is not None:
        return facts
    cancel, worker = threading.Event(), WorkerClient(sys.executable, log=out / "worker-device.log", env=ORDER)
    worker.start(cancel)
    try:
        tries = (measure_ceilings(device, worker, cancel) for _ in range(TRIES))
        facts = next((measured for measured, quiet in tries if quiet), device)
    finally:
        worker.kill()
    keep_ceilings(facts, out)
    return facts


def known_device(target: str, out: Path, part: int) -> DeviceFacts:
    """The device of process number `part`, with the bandwidths stored in `out`; processes are assigned to the GPUs in
    turn."""
    every = devices(target)
    device = every[part % len(every)]
    return known_ceilings(device, out) or device
