"""GPUs by NVIDIA's management library. What it refuses becomes a field that is not known, or one line of trouble."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from kernel_assistant_tui.devices.names import name_of
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
        # The second is no NVMLError: a driver older than what the binding asks for.
        self._refusals = (library.NVMLError, getattr(library, "NVMLLibraryMismatchError", library.NVMLError))
        self._open = False
        self._lost = False
        self._trouble = ""
        self._tried = float("-inf")

    def read(self) -> tuple[tuple[Gpu, ...], str]:
        """The GPUs, or why none can be seen. One that cannot be talked to is there, with a note that says why."""
        again = self._clock() - self._tried >= TRY_AGAIN_S
        if not self._open and not again:
            return (), self._trouble
        if self._lost and again:
            self.close()
        try:
            if not self._open:
                self._tried = self._clock()
                self._nvml.nvmlInit()
                self._open, self._lost = True, False
            count = self._nvml.nvmlDeviceGetCount()
            gpus = tuple(self._gpu(index) for index in range(count))
        except self._refusals as error:
            # The driver was unloaded: begin anew at the next try.
            self.close()
            self._trouble = NO_DRIVER + _words(error)
            return (), self._trouble
        self._trouble = "" if gpus else NO_DRIVER + "the driver sees none"
        return gpus, self._trouble

    def close(self) -> None:
        if self._open:
            self._open = False
            with suppress(*self._refusals):
                self._nvml.nvmlShutdown()

    def _gpu(self, index: int) -> Gpu:
        """Raises NVMLError where the library itself is not open any more."""
        try:
            return self._read(index, self._nvml.nvmlDeviceGetHandleByIndex(index))
        except self._refusals as error:
            if self._is(error, "NVML_ERROR_UNINITIALIZED"):
                raise
            # Off the bus, or not for this container: the others are there all the same.
            self._lost = True
            return Gpu(index, "GPU", note=_words(error))

    def _read(self, index: int, handle: Any) -> Gpu:
        """Raises NVMLError where the device is gone."""
        nvml = self._nvml
        use = self._try(nvml.nvmlDeviceGetUtilizationRates, handle)
        # The second counts what the driver keeps for itself as used, which nvidia-smi does not.
        memory = self._try(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
        memory = memory or self._try(nvml.nvmlDeviceGetMemoryInfo, handle)
        power = self._try(nvml.nvmlDeviceGetPowerUsage, handle)
        limit = self._try(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        mig = self._try(nvml.nvmlDeviceGetMigMode, handle)
        name = self._try(nvml.nvmlDeviceGetName, handle)
        return Gpu(
            index=index,
            name=str(name or "GPU").removeprefix("NVIDIA "),
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
        return tuple(Process(one.pid, name_of(one.pid), one.usedGpuMemory) for one in found)

    def _try(self, call: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return call(*arguments)
        except self._refusals as error:
            if self._is(error, "NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_UNINITIALIZED"):
                raise
            return None

    def _is(self, error: Exception, *names: str) -> bool:
        return getattr(error, "value", None) in [getattr(self._nvml, name) for name in names]


def _words(error: Exception) -> str:
    return " ".join(str(error).split()).removesuffix(".")
