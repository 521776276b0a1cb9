"""What the device does at this moment."""

from __future__ import annotations

from typing import Any

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.targets.detect import detect


def device_status() -> dict[str, Any]:
    """`utilisation` from 0 to 1, memory in bytes; None where the device does not tell. For a thread."""
    try:
        device = detect("auto")
    except KernelAssistantError as error:
        return {"device": error.cause, "utilisation": None, "memory_used": None, "memory_total": None}
    used = _of_gpu(device.index) if device.target == "cuda" else _of_cpu()
    return {"device": device.name, "utilisation": used[0], "memory_used": used[1], "memory_total": used[2]}


def _of_gpu(index: int) -> tuple[float | None, int | None, int | None]:
    import pynvml

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100.0, int(memory.used), int(memory.total)
    except pynvml.NVMLError:
        return None, None, None


def _of_cpu() -> tuple[float, int, int]:
    import psutil

    memory = psutil.virtual_memory()
    return psutil.cpu_percent() / 100.0, int(memory.total - memory.available), int(memory.total)
