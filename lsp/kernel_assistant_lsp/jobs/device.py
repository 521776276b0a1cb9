"""The current load of the device."""

from __future__ import annotations

from typing import Any

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.targets import nvml
from kernel_assistant.targets.detect import detect


def device_status() -> dict[str, Any]:
    """Return `utilisation` from 0 to 1 and memory in bytes; None for values that the device does not report. Call it
    in a thread."""
    try:
        device = detect("auto")
    except KernelAssistantError as error:
        return {"device": error.cause, "utilisation": None, "memory_used": None, "memory_total": None}
    used = _of_gpu(device.index) if device.target == "cuda" else _of_cpu()
    return {"device": device.name, "utilisation": used[0], "memory_used": used[1], "memory_total": used[2]}


def _of_gpu(index: int) -> tuple[float | None, int | None, int | None]:
    """Return (utilisation, memory used, memory in all) of a GPU by its CUDA index; None for what the driver refuses."""
    with nvml.opened() as library:
        if library is None:
            return None, None, None
        try:
            handle = nvml.handles(library)[index]
            used, total = _memory(library, handle)
            busy = nvml.utilisation(library, handle)
        except (library.NVMLError, IndexError):
            return None, None, None
    return None if busy is None else busy / 100.0, used, total


def _memory(library: Any, handle: Any) -> tuple[int | None, int | None]:
    """Return used and total memory, like nvidia-smi without the memory that the driver reserves; old drivers include
    it."""
    for version in (library.nvmlMemory_v2, None):
        try:
            memory = library.nvmlDeviceGetMemoryInfo(handle, version)
        except library.NVMLError:
            continue
        return int(memory.used), int(memory.total)
    return None, None


def _of_cpu() -> tuple[float, int, int]:
    import psutil

    memory = psutil.virtual_memory()
    return psutil.cpu_percent() / 100.0, int(memory.total - memory.available), int(memory.total)
