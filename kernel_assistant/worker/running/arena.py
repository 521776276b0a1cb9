"""Memory that judge and runner share (an arena), as torch tensors. The judge writes it, and the runner maps it.

CPU: a sealed memfd; the runner can map a read-only arena only without write permission, so mutating an input is a
segmentation fault there. CUDA: `cuMemCreate` exported as a file descriptor.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from collections.abc import Sequence
from ctypes import byref, c_int, c_size_t, c_uint64, c_ulonglong

import torch

from ..applied.strided import span
from ..process.gpu_share import hold_arena, release_arena
from ..runner.cuda_driver import Driver
from ..runner.memory import DEVICE, POSIX_DESCRIPTOR, Location, set_access
from ..runner.pytorch.tensors import CudaArrayInterface

F_ADD_SEALS = 1033
F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE = 0x2, 0x4, 0x10
ALIGNMENT = 256


class Arena:
    """A piece of memory that is shared with a runner under the name `name`. `bytes` is a flat uint8 tensor on the
    device; `descriptor` is the file descriptor that the runner gets; `size` is in bytes. Raises torch.OutOfMemoryError
    on a GPU if the memory does not fit."""

    def __init__(self, name: str, size: int, device: torch.device, writable: bool) -> None:
        self.name, self.writable = name, writable
        self._memory = _DeviceMemory(size, device) if device.type == "cuda" else _HostMemory(size, writable)
        self.size: int = self._memory.size
        self.bytes: torch.Tensor = self._memory.tensor
        self.descriptor: int = self._memory.descriptor

    def view(self, offset: int, like: torch.Tensor) -> torch.Tensor:
        """Returns a tensor that begins at the byte `offset` of the arena, with the dtype, shape and strides of
        `like`."""
        return self.views([offset], like)[0]

    def views(self, offsets: Sequence[int], like: torch.Tensor) -> list[torch.Tensor]:
        """Returns one tensor for each byte offset, with the dtype, shape and strides of `like`. Offsets must be
        multiples of the element's size, as multiples of 256 are.
        """
        size, shape, stride = like.element_size(), tuple(like.shape), tuple(like.stride())
        whole = self.bytes[: self.size // size * size].view(like.dtype)
        return [whole.as_strided(shape, stride, offset // size) for offset in offsets]

    def close(self) -> None:
        self.bytes = torch.empty(0, dtype=torch.uint8)
        self._memory.close()


def span_bytes(tensor: torch.Tensor) -> int:
    """Returns the bytes from the first to the last element of a strided tensor, gaps included."""
    return span(tensor) * tensor.element_size()


def padded(size: int) -> int:
    """Returns the bytes that a tensor of `size` bytes takes in an arena: `size` and a red zone of at least 256 bytes
    after it, which nobody may write, rounded up to a multiple of 256."""
    return -(-size // ALIGNMENT) * ALIGNMENT + ALIGNMENT


class _HostMemory:
    def __init__(self, size: int, writable: bool) -> None:
        self.size = max(size, mmap.PAGESIZE)
        self.descriptor = os.memfd_create("kernel-assistant", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, self.size)
            self._map = mmap.mmap(self.descriptor, self.size)
        except BaseException:
            os.close(self.descriptor)
            raise
        seals = F_SEAL_SHRINK | F_SEAL_GROW | (0 if writable else F_SEAL_FUTURE_WRITE)
        fcntl.fcntl(self.descriptor, F_ADD_SEALS, seals)
        self.tensor = torch.frombuffer(self._map, dtype=torch.uint8)

    def close(self) -> None:
        # The mapping itself ends with the last tensor over it.
        os.close(self.descriptor)
        self.tensor = torch.empty(0, dtype=torch.uint8)


class _AllocationFlags(ctypes.Structure):
    _fields_ = [
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    ]


class _AllocationProperties(ctypes.Structure):
    """The C structure CUmemAllocationProp of cuda.h."""

    _fields_ = [
        ("type", c_int),
        ("handle_types", c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("flags", _AllocationFlags),
    ]


class _DeviceMemory:
    def __init__(self, size: int, device: torch.device) -> None:
        torch.cuda.synchronize(device)
        self._driver = Driver(device.index or 0)
        properties = _AllocationProperties(
            type=1, handle_types=POSIX_DESCRIPTOR, location=Location(DEVICE, device.index or 0)
        )
        granularity = c_size_t()
        self._driver.check("cuMemGetAllocationGranularity", byref(granularity), byref(properties), c_int(0))
        self.size = -(-max(size, 1) // granularity.value) * granularity.value
        self._device = device
        hold_arena(self.size, device)
        self._handle, pointer, descriptor = c_ulonglong(), c_uint64(), c_int()
        code = self._driver.lib.cuMemCreate(byref(self._handle), c_size_t(self.size), byref(properties), c_ulonglong(0))
        if code == 2:
            torch.cuda.empty_cache()
            code = self._driver.lib.cuMemCreate(
                byref(self._handle), c_size_t(self.size), byref(properties), c_ulonglong(0)
            )
        if code:
            release_arena(self.size, device)
        if code == 2:
            raise torch.OutOfMemoryError(f"no {self.size >> 20} MiB of device memory left for the shared arena")
        if code:
            self._driver.fail("cuMemCreate", code)
        self._driver.check(
            "cuMemAddressReserve", byref(pointer), c_size_t(self.size), c_size_t(0), c_uint64(0), c_ulonglong(0)
        )
        self._address = pointer.value
        self._driver.check("cuMemMap", pointer, c_size_t(self.size), c_size_t(0), self._handle, c_ulonglong(0))
        set_access(self._driver, self._address, self.size, True)
        self._driver.check(
            "cuMemExportToShareableHandle", byref(descriptor), self._handle, c_int(POSIX_DESCRIPTOR), c_ulonglong(0)
        )
        self.descriptor = descriptor.value
        self.tensor = torch.as_tensor(CudaArrayInterface(self._address, self.size), device=device)

    def close(self) -> None:
        torch.cuda.synchronize()
        os.close(self.descriptor)
        self.tensor = torch.empty(0, dtype=torch.uint8)
        self._driver.check("cuMemUnmap", c_uint64(self._address), c_size_t(self.size))
        self._driver.check("cuMemAddressFree", c_uint64(self._address), c_size_t(self.size))
        self._driver.check("cuMemRelease", self._handle)
        release_arena(self.size, self._device)
