"""Makes one CUDA graph of several launches of a plan, which run one after another: kernels and library calls. The
arguments of its kernels can be set before each launch of the graph.

Standard library only. docs/launching.md says when a graph pays and what it costs. Structs are those of cuda.h (CUDA
12)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p
from typing import NamedTuple

from .capture import captured_graph
from .cuda_driver import CudaError, Driver

#: Fewest launches for a graph: it costs 3.5 µs and 0.85 µs a kernel, a single launch 2.9 µs (H200).
FEWEST = 3


class Kernel(NamedTuple):
    """A loaded kernel with one struct argument. `geometry` has seven numbers: grid (3), block (3), dynamic shared
    memory in bytes."""

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


#: A link of the chain: a kernel over its argument struct, or a function that launches something on a stream.
Link = tuple[Kernel, ctypes.Array[c_uint64]] | Callable[[int], object]


class KernelGraph:
    """A CUDA graph that runs launches one after another (`links`), for one caller at a time. Its kernels read argument
    structs at fixed addresses. A link that is a function is run once, to capture what it launches, with the buffer
    addresses of that moment.

    Changes of the structs do not affect a graph that is running. Two launches of the graph never overlap, even on
    different streams. Raises CudaError if the driver refuses."""

    def __init__(self, driver: Driver, links: Sequence[Link]) -> None:
        self._driver, self._library = driver, driver.lib
        self._graph, self._executable = c_void_p(), c_void_p()
        self._kept: list[tuple[NodeParameters, ctypes.Array[c_void_p], ctypes.Array[c_uint64]]] = []
        #: The arguments that set the parameters of a node, by the number of its link.
        self._updates: dict[int, tuple[object, ...]] = {}
        driver.check("cuGraphCreate", byref(self._graph), c_uint(0))
        before: c_void_p | None = None
        for number, link in enumerate(links):
            before = self._captured(link, before) if callable(link) else self._kernel(number, *link, before)
        driver.check("cuGraphInstantiateWithFlags", byref(self._executable), self._graph, c_ulonglong(0))
        self._set = driver.lib.cuGraphExecKernelNodeSetParams_v2
        self._all = tuple(self._updates.values())
        self._launch = driver.lib.cuGraphLaunch

    def _kernel(self, number: int, kernel: Kernel, words: ctypes.Array[c_uint64], before: c_void_p | None) -> c_void_p:
        parameters = (c_void_p * 1)(ctypes.addressof(words))
        settings = NodeParameters(kernel.function, (c_uint * 7)(*kernel.geometry), ctypes.addressof(parameters))
        node = c_void_p()
        self._driver.check("cuGraphAddKernelNode_v2", byref(node), self._graph, *_after(before), byref(settings))
        self._kept.append((settings, parameters, words))
        self._updates[number] = self._executable, node, byref(settings)
        return node

    def _captured(self, work: Callable[[int], object], before: c_void_p | None) -> c_void_p:
        node, child = c_void_p(), captured_graph(self._driver, work)
        try:
            self._driver.check("cuGraphAddChildGraphNode", byref(node), self._graph, *_after(before), child)
        finally:
            self._library.cuGraphDestroy(child)
        return node

    def update(self, number: int) -> None:
        """Sets the arguments of the kernel at index `number` of the links to the present content of its struct. Raises
        CudaError."""
        status = self._set(*self._updates[number])
        if status:
            self._driver.fail("cuGraphExecKernelNodeSetParams", status)

    def start(self, stream: int) -> int:
        """Launches the graph on the stream with this handle. Returns the driver's status, 0 if all is well."""
        return int(self._launch(self._executable, c_void_p(stream)))

    def launch(self, stream: int) -> int:
        """Sets the arguments of all kernels to the present content of their structs, then launches the graph on the
        stream with this handle. Returns the driver's status, 0 if all is well."""
        set_parameters = self._set
        for update in self._all:
            status = set_parameters(*update)
            if status:
                return int(status)
        return self.start(stream)

    def __del__(self) -> None:
        if self._executable.value:
            self._library.cuGraphExecDestroy(self._executable)
        # Nodes are identified by the graph in which they were made, so it must live as long.
        if self._graph.value:
            self._library.cuGraphDestroy(self._graph)


def _after(before: c_void_p | None) -> tuple[object, c_size_t]:
    """Returns a pointer to the node `before`, after which a new node of the graph has to run, and the number of such
    nodes: (None, 0) if `before` is None."""
    return None if before is None else byref(before), c_size_t(0 if before is None else 1)


def graph_of(driver: Driver, links: Sequence[Link]) -> KernelGraph | None:
    """Returns a CUDA graph of these launches; None if the driver (before CUDA 12) cannot make one. Then the caller
    makes the launches one by one."""
    try:
        return KernelGraph(driver, links)
    except (AttributeError, CudaError):
        return None
