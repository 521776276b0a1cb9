"""Calls as one CUDA graph, captured on a stream. Standard library only.

In a graph the device starts each kernel behind the one before by itself. So its time is that of the kernels, also where
the host takes longer to launch a kernel (2.9 µs on an H200) than the kernel runs. Names are those of cuda.h (CUDA 12).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from ctypes import byref, c_int, c_ulonglong, c_void_p

from .cuda_driver import CudaError, Driver, Events

RELAXED = 2


#: A stream is captured by one thread at a time.
_capturing = threading.Lock()


class CapturedCalls:
    """What `work(stream)` launches on the driver's own stream, as a graph. Raises CudaError if something in it cannot
    be captured; the stream is usable afterwards."""

    def __init__(self, driver: Driver, work: Callable[[int], object]) -> None:
        self._driver, self._stream, self._executable = driver, driver.stream, c_void_p()
        graph = captured_graph(driver, work)
        try:
            driver.check("cuGraphInstantiateWithFlags", byref(self._executable), graph, c_ulonglong(0))
        finally:
            driver.lib.cuGraphDestroy(graph)
        driver.check("cuGraphUpload", self._executable, c_void_p(self._stream))
        driver.synchronize()

    def milliseconds(self, events: Events) -> float:
        """Replays the calls and waits for them. Returns the device's time."""
        events.record(events.begin, self._stream)
        self._driver.check("cuGraphLaunch", self._executable, c_void_p(self._stream))
        events.record(events.end, self._stream)
        self._driver.synchronize()
        return events.elapsed_ms()

    def __del__(self) -> None:
        if self._executable.value:
            self._driver.lib.cuGraphExecDestroy(self._executable)


def captured(driver: Driver, work: Callable[[int], object]) -> CapturedCalls | None:
    """The graph, None where the driver (before CUDA 12) or a library refuses."""
    try:
        return CapturedCalls(driver, work)
    except (AttributeError, CudaError):
        return None


def captured_graph(driver: Driver, work: Callable[[int], object]) -> c_void_p:
    """The graph of what `work(stream)` launches on the driver's own stream, to be destroyed by the caller. Raises
    CudaError."""
    graph, stream = c_void_p(), c_void_p(driver.stream)
    with _capturing:
        driver.check("cuStreamBeginCapture_v2", stream, c_int(RELAXED))
        try:
            work(driver.stream)
        except BaseException:
            if not driver.lib.cuStreamEndCapture(stream, byref(graph)):
                driver.lib.cuGraphDestroy(graph)
            raise
        status = driver.lib.cuStreamEndCapture(stream, byref(graph))
    if status:
        driver.fail("cuStreamEndCapture", status)
    return graph


def capturing(driver: Driver, stream: int) -> bool:
    """Whether this stream is being captured: a graph cannot be launched during a capture. True if that is unknown."""
    status = c_int()
    return bool(driver.lib.cuStreamIsCapturing(c_void_p(stream), byref(status)) or status.value)
