"""Maps memory that the judge (the process that checks and times candidates) shares with the runner, as raw addresses.
Standard library only.

CPU: a memfd mapped with libc's mmap. CUDA: a virtual-memory allocation imported from its file descriptor (CUDA driver
API, "Virtual Memory Management"); legacy IPC handles do not cross PID namespaces."""

from __future__ import annotations

import ctypes
import mmap
import os
from ctypes import byref, c_int, c_size_t, c_uint64, c_ulonglong, c_void_p

from .cuda_driver import Driver

MAP_POPULATE = 0x8000


class MappedMemory:
    """`size` bytes of the memfd `descriptor`, mapped at `address`; closes the descriptor. Raises MemoryError."""

    def __init__(self, descriptor: int, size: int, writable: bool) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = c_void_p
        libc.mmap.argtypes = [c_void_p, c_size_t, c_int, c_int, c_int, ctypes.c_long]
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        address = libc.mmap(None, size, protection, mmap.MAP_SHARED | MAP_POPULATE, descriptor, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(f"mmap of {size} bytes: {os.strerror(ctypes.get_errno())}")
        self.address: int = address
        self._size, self._libc = size, libc
        os.close(descriptor)

    def close(self) -> None:
        self._libc.munmap(c_void_p(self.address), c_size_t(self._size))


class Location(ctypes.Structure):
    """The C structure CUmemLocation of cuda.h."""

    _fields_ = [("type", c_int), ("id", c_int)]


class _AccessDescription(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", c_int)]


DEVICE, READ_ONLY, READ_WRITE, POSIX_DESCRIPTOR = 1, 1, 3, 1


class ImportedMemory:
    """`size` bytes of another process's device memory, mapped at `address`; closes `descriptor`. Raises CudaError."""

    def __init__(self, driver: Driver, descriptor: int, size: int, writable: bool) -> None:
        self._driver, self._size = driver, size
        self._handle, pointer = c_ulonglong(), c_uint64()
        driver.check(
            "cuMemImportFromShareableHandle", byref(self._handle), c_void_p(descriptor), c_int(POSIX_DESCRIPTOR)
        )
        os.close(descriptor)
        driver.check("cuMemAddressReserve", byref(pointer), c_size_t(size), c_size_t(0), c_uint64(0), c_ulonglong(0))
        self.address = pointer.value
        driver.check("cuMemMap", pointer, c_size_t(size), c_size_t(0), self._handle, c_ulonglong(0))
        set_access(driver, self.address, size, writable)

    def close(self) -> None:
        self._driver.check("cuMemUnmap", c_uint64(self.address), c_size_t(self._size))
        self._driver.check("cuMemAddressFree", c_uint64(self.address), c_size_t(self._size))
        self._driver.check("cuMemRelease", self._handle)


def set_access(driver: Driver, address: int, size: int, writable: bool) -> None:
    """Gives this device access to the mapped range of `size` bytes at `address`: read and write if `writable`,
    otherwise read only, or read and write if the driver does not support read only. Raises CudaError."""
    location = Location(DEVICE, driver.device.value)
    for flags in (READ_WRITE,) if writable else (READ_ONLY, READ_WRITE):
        description = _AccessDescription(location, flags)
        code = driver.lib.cuMemSetAccess(c_uint64(address), c_size_t(size), byref(description), c_size_t(1))
        if code == 0:
            return
    driver.fail("cuMemSetAccess", code)
