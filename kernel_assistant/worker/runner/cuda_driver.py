"""Wraps the few calls of the CUDA driver API that a runner needs, through ctypes. Standard library only.

The functions are named as in the driver. A failed call raises CudaError with the driver's own name for the failure."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cached_property
from typing import Any

MAX_DYNAMIC_SHARED = 8
NON_PORTABLE_CLUSTER = 14
OUT_OF_MEMORY = 2
NON_BLOCKING = 1


class CudaError(RuntimeError):
    """A call of the CUDA driver, cuBLASLt or cuDNN failed. `code` is the CUresult, or the library's status. Most errors
    of the driver are sticky: the context stays unusable, and the process must end."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name}")
        self.code = code
        self.name = name


class Driver:
    """The CUDA driver library, initialised. Makes the primary context of GPU number `device` current on this thread.
    Raises CudaError."""

    def __init__(self, device: int = 0) -> None:
        try:
            self.lib = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError("dlopen", 100, f"libcuda.so.1 cannot be loaded: {error}") from error
        self.lib.cuLaunchKernel.argtypes = [c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p]
        self.check("cuInit", c_uint(0))
        self.device = c_int()
        self.check("cuDeviceGet", byref(self.device), c_int(device))
        self.context = c_void_p()
        self.check("cuDevicePrimaryCtxRetain", byref(self.context), self.device)
        self.make_current()

    @cached_property
    def stream(self) -> int:
        """Returns the handle of a stream that does not wait for the default stream, made at first use."""
        return self.new_stream()

    @cached_property
    def device_name(self) -> str:
        """Returns the GPU's name and the version of the driver, such as "NVIDIA H200, driver 13000"."""
        name, version = ctypes.create_string_buffer(256), c_int()
        self.check("cuDeviceGetName", name, c_int(len(name)), self.device)
        self.check("cuDriverGetVersion", byref(version))
        return f"{name.value.decode(errors='replace')}, driver {version.value}"

    def new_stream(self) -> int:
        """Returns the handle of a new stream that does not wait for the default stream. The caller ends it with
        `end_stream`."""
        stream = c_void_p()
        self.check("cuStreamCreate", byref(stream), c_uint(NON_BLOCKING))
        return stream.value or 0

    def end_stream(self, stream: int) -> None:
        """Destroys a stream that `new_stream` made, as soon as its work is done."""
        self.lib.cuStreamDestroy_v2(c_void_p(stream))

    def make_current(self) -> None:
        self.check("cuCtxSetCurrent", self.context)

    def check(self, call: str, *arguments: Any) -> None:
        code = getattr(self.lib, call)(*arguments)
        if code:
            self.fail(call, code)

    def fail(self, call: str, code: int) -> None:
        name = c_char_p()
        self.lib.cuGetErrorName(c_int(code), byref(name))
        raise CudaError(call, code, (name.value or b"unknown error").decode())

    def synchronize(self) -> None:
        """Waits until all work in the current context is done, on every stream. Raises CudaError."""
        self.check("cuCtxSynchronize")

    def allocate(self, size: int) -> int:
        pointer = c_uint64()
        self.check("cuMemAlloc_v2", byref(pointer), c_size_t(max(size, 1)))
        return pointer.value

    def free(self, pointer: int) -> None:
        self.check("cuMemFree_v2", c_uint64(pointer))

    def fill(self, pointer: int, byte: int, size: int) -> None:
        self.check("cuMemsetD8_v2", c_uint64(pointer), ctypes.c_ubyte(byte), c_size_t(size))

    def load_module(self, image: bytes) -> c_void_p:
        module = c_void_p()
        self.check("cuModuleLoadData", byref(module), c_char_p(image))
        return module

    def unload_module(self, module: c_void_p) -> None:
        self.check("cuModuleUnload", module)

    def function(self, module: c_void_p, symbol: str) -> c_void_p:
        function = c_void_p()
        self.check("cuModuleGetFunction", byref(function), module, c_char_p(symbol.encode()))
        return function

    def allow_shared(self, function: c_void_p, size: int) -> None:
        """Raises the limit of a kernel's dynamic shared memory to `size` bytes."""
        self.check("cuFuncSetAttribute", function, c_int(MAX_DYNAMIC_SHARED), c_int(size))

    def allow_large_clusters(self, function: c_void_p) -> None:
        """Permits clusters of 16 thread blocks for a kernel. Devices before compute capability 9.0 have no clusters:
        there the driver refuses, which is ignored."""
        self.lib.cuFuncSetAttribute(function, c_int(NON_PORTABLE_CLUSTER), c_int(1))


class Events:
    """A pair of CUDA events, `begin` and `end`, to time work on a stream, with a resolution of about 0.5 µs."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.begin, self.end = c_void_p(), c_void_p()
        for event in (self.begin, self.end):
            driver.check("cuEventCreate", byref(event), c_uint(0))

    def record(self, event: c_void_p, stream: int = 0) -> None:
        self.driver.check("cuEventRecord", event, c_void_p(stream))

    def elapsed_ms(self) -> float:
        milliseconds = ctypes.c_float()
        call = "cuEventElapsedTime_v2" if hasattr(self.driver.lib, "cuEventElapsedTime_v2") else "cuEventElapsedTime"
        self.driver.check(call, byref(milliseconds), self.begin, self.end)
        return milliseconds.value


def pointer_array(words: ctypes.Array[c_uint64]) -> ctypes.Array[c_void_p]:
    """Returns the array `kernelParams` of cuLaunchKernel for a kernel whose only argument is the struct `words`. The
    caller keeps `words` alive."""
    return (c_void_p * 1)(ctypes.addressof(words))


__all__ = ["POINTER", "CudaError", "Driver", "Events", "pointer_array"]
