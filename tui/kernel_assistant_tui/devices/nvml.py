"""Reads GPUs with NVIDIA's management library. A value that the library does not report becomes None; any other error
becomes a line of text."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import psutil

from kernel_assistant_tui.devices.reading import Gpu, Process

#: Parts of paths: a process with a CUDA context has loaded the library, or is the MPS server of those that share one.
_DRIVER = (b"libcuda.", b"nvidia-cuda-mps")
T = TypeVar("T")

#: Seconds between attempts to open the library: a driver may appear later, when a container gets its device.
TRY_AGAIN_S = 30.0
NO_DRIVER = "no NVIDIA GPU here: "


def name_of(pid: int) -> str:
    """Returns the name of the process `pid`; "" if it has ended or has not loaded the driver. In a container the driver
    may report ids from another container, and here such an id belongs to an unrelated process."""
    try:
        return _name(pid, psutil.Process(pid).create_time())
    except psutil.Error:
        return ""


@functools.lru_cache(maxsize=256)
def _name(pid: int, begun: float) -> str:
    """Return the name of the process `pid` that began at `begun`, "" if it has not loaded the driver. Cached, because
    the list of a process's loaded files is long.
    """
    return psutil.Process(pid).name() if _has_driver(pid) else ""


def _has_driver(pid: int) -> bool:
    """Whether a process has loaded NVIDIA's driver. If its files are hidden, because another user owns it, returns
    True, except for process 1, which is the init process or the outer id of a sandbox."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as maps:
            text = maps.read()
    except OSError:
        return pid != 1
    return any(word in text for word in _DRIVER)


class Nvml:
    """Reads GPUs, and keeps the library open between readings. Use it in one thread at a time."""

    def __init__(self, library: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        if library is None:
            import pynvml

            library = pynvml
        self._nvml, self._clock = library, clock
        # The second is not an NVMLError: the driver is older than the binding needs.
        self._refusals = (library.NVMLError, getattr(library, "NVMLLibraryMismatchError", library.NVMLError))
        self._open = False
        self._lost = False
        self._trouble = ""
        self._tried = float("-inf")

    def read(self) -> tuple[tuple[Gpu, ...], str]:
        """Return the GPUs, and a line that says why there are none ("" if there are some). A GPU that cannot be read
        is included, with a note that says why."""
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
            # The driver was unloaded: open the library again at the next attempt.
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
        """Read one GPU. Raises NVMLError if the library is not open any more."""
        try:
            return self._read(index, self._nvml.nvmlDeviceGetHandleByIndex(index))
        except self._refusals as error:
            if self._is(error, "NVML_ERROR_UNINITIALIZED"):
                raise
            # Lost, or not allowed in this container: the other GPUs can still be read.
            self._lost = True
            return Gpu(index, "GPU", note=_words(error))

    def _read(self, index: int, handle: Any) -> Gpu:
        """Read the values of one GPU. Raises NVMLError if the GPU is lost."""
        nvml = self._nvml
        use = self._try(nvml.nvmlDeviceGetUtilizationRates, handle)
        # The fallback counts the memory that the driver reserves as used; nvidia-smi does not.
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
        listed = self._try(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        return tuple(Process(one.pid, name_of(one.pid), one.usedGpuMemory) for one in listed)

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
