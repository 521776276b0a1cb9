"""Reads the load of the GPUs and the CPU, and keeps the readings of the last two minutes."""

from __future__ import annotations

import os
from collections import deque

import psutil

from kernel_assistant_tui.devices.nvml import Nvml
from kernel_assistant_tui.devices.reading import Cpu, DeviceSample

#: Number of readings that are kept: two minutes at one a second.
KEPT = 120


class DeviceMonitor:
    """Reads all devices. `read` waits for the driver, so call it in a thread."""

    def __init__(self, nvml: Nvml | None = None) -> None:
        self._nvml = nvml or Nvml()

    def read(self) -> DeviceSample:
        gpus, trouble = self._nvml.read()
        memory = psutil.virtual_memory()
        return DeviceSample(
            gpus=gpus,
            cpu=Cpu(
                cores=tuple(psutil.cpu_percent(percpu=True)),
                memory=int(memory.total - memory.available),
                memory_total=int(memory.total),
                load=os.getloadavg()[0],
            ),
            trouble=trouble,
        )

    def close(self) -> None:
        self._nvml.close()


class DeviceHistory:
    """The readings of the last two minutes in per cent, by name: `cpu`, `cpu memory`, and for GPU 0 `0` and `0
    memory`."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[float]] = {}

    def add(self, reading: DeviceSample) -> None:
        self._note("cpu", reading.cpu.busy)
        self._note("cpu memory", 100 * reading.cpu.memory / max(reading.cpu.memory_total, 1))
        for gpu in reading.gpus:
            self._note(f"{gpu.index}", gpu.busy or 0.0)
            if gpu.memory is not None and gpu.memory_total:
                self._note(f"{gpu.index} memory", 100 * gpu.memory / gpu.memory_total)

    def of(self, name: str) -> tuple[float, ...]:
        """Return the readings with this name, oldest first."""
        return tuple(self._kept.get(name, ()))

    def _note(self, name: str, value: float) -> None:
        self._kept.setdefault(name, deque(maxlen=KEPT)).append(value)
