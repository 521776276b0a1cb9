"""Finds the device of this machine for a target."""

from __future__ import annotations

from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.targets import cpu, cuda
from kernel_assistant.targets.base import DeviceFacts


def detect(target: str = "auto") -> DeviceFacts:
    """Returns the device for a target. For "cuda" it is the GPU with the least load, for "cpu" the CPU; for "auto" it
    is such a GPU if there are a GPU and nvcc, else the CPU. Raises MissingError if there is no GPU for "cuda", and
    UsageError for another target."""
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
