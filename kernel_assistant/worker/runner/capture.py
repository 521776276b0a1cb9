"""Captures calls on a stream as one CUDA graph. Standard library only.

In a graph the device itself starts each kernel after the previous one. So the time of a graph is that of its kernels,
even if the host takes longer to launch a kernel (2.9 µs on an H200) than the kernel runs. Names are those of cuda.h
(CUDA 12).
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
    """A CUDA graph of the work that `work(stream)` launches on the driver's own stream, captured at once. Raises
    CudaError if some of it cannot be captured; the stream is usable afterwards."""

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
        """Replays the calls and waits for them. Returns their time on the device in milliseconds."""
        events.record(events.begin, self._stream)
        self._driver.check("cuGraphLaunch", self._executable, c_void_p(self._stream))
        events.record(events.end, self._stream)
        self._driver.synchronize()
        return events.elapsed_ms()

    def __del__(self) -> None:
        if self._executable.value:
            self._driver.lib.cuGraphExecDestroy(self._executable)


def captured(driver: Driver, work: Callable[[int], object]) -> CapturedCalls | None:
    """Returns the CUDA graph of the work that `work(stream)` launches; None if the driver (before CUDA 12) or a library
    refuses."""
    try:
        return CapturedCalls(driver, work)
    except (AttributeError, CudaError):
        return None


def captured_graph(driver: Driver, work: Callable[[int], object]) -> c_void_p:
    """Returns the CUDA graph, not yet instantiated, of the work that `work(stream)` launches on the driver's own
    stream. The caller destroys it. Raises CudaError."""
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
    """Whether the stream with this handle is being captured: a graph cannot be launched during a capture. True if the
    driver cannot tell."""
    status = c_int()
    return bool(driver.lib.cuStreamIsCapturing(c_void_p(stream), byref(status)) or status.value)
