"""The kernels of a plan as one CUDA graph, a chain: each call sets the arguments of every kernel and launches the
graph.

Standard library only. When this pays, and what it costs: docs/launching.md. Structs are those of cuda.h (CUDA 12).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p
from typing import NamedTuple

from .cuda_driver import CudaError, Driver

#: Fewest launches for a graph: it costs 3.5 µs and 0.85 µs a kernel, a single launch 2.9 µs (H200).
FEWEST = 3


class Kernel(NamedTuple):
    """A loaded kernel with one struct argument. `geometry`: grid, block, dynamic shared memory in bytes."""

    function: c_void_p
    geometry: tuple[int, ...]


class NodeParameters(ctypes.Structure):
    """The C structure CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h."""

    _fields_ = [
        ("function", c_void_p),
        ("geometry", c_uint * 7),
        ("parameters", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    ]


class KernelGraph:
    """A chain of kernels over argument structs at fixed addresses. For one caller at a time.

    A launch that is running keeps the values it was given; two launches never overlap, even on different streams.
    Raises CudaError if the driver refuses.
    """

    def __init__(self, driver: Driver, kernels: Sequence[tuple[Kernel, ctypes.Array[c_uint64]]]) -> None:
        self._library, self._graph, self._executable = driver.lib, c_void_p(), c_void_p()
        self._kept: list[tuple[c_void_p, NodeParameters, ctypes.Array[c_void_p], ctypes.Array[c_uint64]]] = []
        driver.check("cuGraphCreate", byref(self._graph), c_uint(0))
        before: c_void_p | None = None
        for kernel, words in kernels:
            parameters = (c_void_p * 1)(ctypes.addressof(words))
            settings = NodeParameters(kernel.function, (c_uint * 7)(*kernel.geometry), ctypes.addressof(parameters))
            node = c_void_p()
            dependencies = None if before is None else byref(before)
            count = c_size_t(0 if before is None else 1)
            driver.check("cuGraphAddKernelNode_v2", byref(node), self._graph, dependencies, count, byref(settings))
            self._kept.append((node, settings, parameters, words))
            before = node
        driver.check("cuGraphInstantiateWithFlags", byref(self._executable), self._graph, c_ulonglong(0))
        self._set = driver.lib.cuGraphExecKernelNodeSetParams_v2
        self._updates = [(self._executable, node, byref(settings)) for node, settings, _, _ in self._kept]
        self._launch = driver.lib.cuGraphLaunch

    def launch(self, stream: int) -> int:
        """Read all structs, launch the graph, and return the driver's status, 0 if all is well."""
        set_parameters = self._set
        for update in self._updates:
            status = set_parameters(*update)
            if status:
                return int(status)
        return int(self._launch(self._executable, c_void_p(stream)))

    def __del__(self) -> None:
        if self._executable.value:
            self._library.cuGraphExecDestroy(self._executable)
        # Nodes are identified by the graph in which they were made, so it must live as long.
        if self._graph.value:
            self._library.cuGraphDestroy(self._graph)


def graph_of(driver: Driver, kernels: Sequence[tuple[Kernel, ctypes.Array[c_uint64]]]) -> KernelGraph | None:
    """The graph of these kernels, None if this driver cannot make one (before CUDA 12): single launches do the same."""
    try:
        return KernelGraph(driver, kernels)
    except (AttributeError, CudaError):
        return None


def capturing(driver: Driver, stream: int) -> bool:
    """Whether this stream is being captured: a graph cannot be launched during a capture. True if that is unknown."""
    status = c_int()
    return bool(driver.lib.cuStreamIsCapturing(c_void_p(stream), byref(status)) or status.value)
