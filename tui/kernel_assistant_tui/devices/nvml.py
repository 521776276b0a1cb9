"""GPUs by NVIDIA's management library. What it refuses becomes a field that is not known, or one line of trouble."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import psutil

from kernel_assistant_tui.devices.reading import Gpu, Process

T = TypeVar("T")

#: A driver that was not there may come: a container gets its device, a module is loaded. Seconds.
TRY_AGAIN_S = 30.0
NO_DRIVER = "no NVIDIA GPU here: "


class Nvml:
    """Keeps the library open from one reading to the next; used by one thread at a time."""

    def __init__(self, library: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        if library is None:
            import pynvml

            library = pynvml
        self._nvml, self._clock = library, clock
        self._open = False
        self._trouble = ""
        self._tried = float("-inf")

    def read(self) -> tuple[tuple[Gpu, ...], str]:
        """The GPUs, or why none can be seen."""
        if not self._open and self._clock() - self._tried < TRY_AGAIN_S:
            return (), self._trouble
        try:
            if not self._open:
                self._tried = self._clock()
                self._nvml.nvmlInit()
                self._open = True
            count = self._nvml.nvmlDeviceGetCount()
            gpus = tuple(self._gpu(index) for index in range(count))
        except self._nvml.NVMLError as error:
            # The driver was unloaded, or the device fell off the bus: begin anew at the next try.
            self.close()
            self._trouble = NO_DRIVER + _words(error)
            return (), self._trouble
        self._trouble = "" if gpus else NO_DRIVER + "the driver sees none"
        return gpus, self._trouble

    def close(self) -> None:
        if self._open:
            self._open = False
            self._try(self._nvml.nvmlShutdown)

    def _gpu(self, index: int) -> Gpu:
        """Raises NVMLError where the device itself cannot be had."""
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        use = self._try(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._try(nvml.nvmlDeviceGetMemoryInfo, handle)
        power = self._try(nvml.nvmlDeviceGetPowerUsage, handle)
        limit = self._try(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        mig = self._try(nvml.nvmlDeviceGetMigMode, handle)
        name = self._try(nvml.nvmlDeviceGetName, handle)
        return Gpu(
            index=index,
            name=name.decode() if isinstance(name, bytes) else str(name or "GPU").removeprefix("NVIDIA "),
            busy=None if use is None else int(use.gpu),
            memory=None if memory is None else int(memory.used),
            memory_total=None if memory is None else int(memory.total),
            power=None if power is None else power / 1000,
            power_limit=None if limit is None else limit / 1000,
            temperature=self._try(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            processes=self._processes(handle),
            note="MIG is on: use is known by instance alone" if mig and mig[0] else "",
        )

    def _processes(self, handle: Any) -> tuple[Process, ...]:
        found = self._try(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        return tuple(Process(one.pid, _name(one.pid), one.usedGpuMemory) for one in found)

    def _try(self, call: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return call(*arguments)
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) in (
                getattr(self._nvml, "NVML_ERROR_GPU_IS_LOST", -1),
                getattr(self._nvml, "NVML_ERROR_UNINITIALIZED", -1),
            ):
                raise
            return None


def _name(pid: int) -> str:
    """ "?" for a process of another container or user."""
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "?"


def _words(error: Exception) -> str:
    return " ".join(str(error).split()).removesuffix(".")
