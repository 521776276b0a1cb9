"""Allocates memory on the CPU for results and scratch, and uses it again once no tensor refers to it.

PyTorch takes large blocks from the C library, which returns them to the system when they are freed. The system then
clears every page again at the next call, which takes several times as long as a kernel that only writes the memory
(docs/launching.md). Here, a block is kept when the storage over it is freed, and a later call takes it."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from ..runner import plan as plans
from ..runner.pytorch.tensors import DTYPES
from .packing import allocator

#: Smaller tensors are PyTorch's own: the C library keeps their memory itself.
LEAST_BYTES = 1 << 20
#: Most bytes of free blocks that are kept. The block that came back last is kept even if it is larger.
MOST_FREE_BYTES = 256 << 20
_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)


class HostMemory:
    """Keeps freed blocks of this process's memory by size, for later storages. Thread-safe without a lock: a block
    comes back whenever a storage is freed, also while another call is in progress in the same thread. All changes are
    atomic operations."""

    def __init__(self) -> None:
        self._free: dict[int, list[mmap.mmap]] = {}

    def storage(self, size: int) -> torch.UntypedStorage:
        """Returns a storage of `size` bytes with undefined values. One of at least LEAST_BYTES begins at a page, and
        cannot be resized."""
        block = self._take(size) if size >= LEAST_BYTES else None
        if block is None:
            return torch.empty(size, dtype=torch.uint8, device="cpu").untyped_storage()
        array = (ctypes.c_char * size).from_buffer(block)
        # The storage keeps the array alive; when both are freed, the block comes back.
        weakref.finalize(array, self._give, size, block).atexit = False
        return torch.frombuffer(array, dtype=torch.uint8).untyped_storage()

    def free_bytes(self) -> int:
        """Returns the number of bytes in kept blocks, which no tensor uses."""
        # A copy, because the garbage collector may free storages at any allocation.
        return sum(size * len(blocks) for size, blocks in self._free.copy().items())

    def _take(self, size: int) -> mmap.mmap | None:
        """Returns a free block of `size` bytes, or a new one; None if the system does not give one."""
        with suppress(KeyError, IndexError):
            return self._free[size].pop()
        if not _PRIVATE:
            return None
        if self.free_bytes() > MOST_FREE_BYTES:
            # Results of ever new sizes would need twice their memory.
            self._free.clear()
        try:
            block = mmap.mmap(-1, size, flags=_PRIVATE)
        except OSError:
            return None
        with suppress(OSError, AttributeError):
            block.madvise(mmap.MADV_HUGEPAGE)
        return block

    def _give(self, size: int, block: mmap.mmap) -> None:
        """Keeps a block whose storage was freed. If too many bytes are kept, blocks of other sizes are
        dropped first."""
        self._free.setdefault(size, []).append(block)
        for other in tuple(self._free):
            if self.free_bytes() <= MOST_FREE_BYTES:
                return
            if other != size:
                self._free.pop(other, None)
        blocks = self._free.get(size, [])
        while len(blocks) > 1 and self.free_bytes() > MOST_FREE_BYTES:
            with suppress(IndexError):
                blocks.pop()


MEMORY = HostMemory()


def host_allocator(spec: dict[str, Any], dims: dict[str, int]) -> Callable[[], torch.Tensor]:
    """Returns a function that makes a tensor on the CPU with the dtype, shape and strides of `spec` at the sizes
    `dims`, and undefined values."""
    size = plans.byte_size(spec, dims)
    if size < LEAST_BYTES:
        return allocator(spec, dims, torch.device("cpu"))
    shape, strides, dtype = plans.shape(spec, dims), plans.strides(spec, dims), DTYPES[spec["dtype"]]
    return lambda: torch.empty(0, dtype=dtype, device="cpu").set_(MEMORY.storage(size), 0, shape, strides)


def host_bytes(size: int) -> torch.Tensor:
    """Returns a uint8 tensor of shape [size] on the CPU with undefined values."""
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(MEMORY.storage(size))
