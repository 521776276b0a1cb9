"""Finds the device that a target means on this machine."""

from __future__ import annotations

from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.targets import cpu, cuda
from kernel_assistant.targets.base import DeviceFacts


def detect(target: str = "auto") -> DeviceFacts:
    """The idle GPU for "cuda", the CPU for "cpu", and for "auto" a GPU where there is one with nvcc, else the CPU."""
    if target == "cpu":
        return cpu.facts()
    if target not in ("auto", "cuda"):
        raise UsageError(f"unknown target {target!r}", "use auto, cuda or cpu")
    devices = cuda.gpus()
    if not devices:
        if target == "cuda":
            raise MissingError("no NVIDIA GPU was found", "use --target cpu, or check nvidia-smi")
        return cpu.facts()
    if target == "auto":
        try:
            cuda.compiler()
        except MissingError:
            return cpu.facts()
    return cuda.idle_gpu(devices)
