"""Prepares the launches of a plan as foreign calls (ctypes): a call of the plan then only updates pointers and makes
the prepared calls in order.

Standard library only. Reasons and costs: docs/launching.md.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_uint, c_uint64, c_void_p
from typing import Any, NamedTuple, Protocol

from .kernel_graph import FEWEST, Kernel

Words = ctypes.Array[c_uint64]
#: A foreign function and its arguments, which live as long as the frame. It returns a status, 0 or None if all is well.
Entry = tuple[Callable[..., Any], tuple[Any, ...]]


class PreparedLaunch(NamedTuple):
    """One launch of a plan for known sizes.

    `words` are the 64-bit fields of its argument struct; `slots` lists the pointers among them as (index in `words`,
    index of a buffer). `enter(struct, stream)` returns the prepared call with this struct on this stream, or None if
    there is nothing to launch. `kernel` is set if the launch may be a kernel node of a CUDA graph."""

    words: list[int]
    slots: list[tuple[int, int]]
    enter: Callable[[Words, int], Entry | None]
    kernel: Kernel | None = None


class GraphMaker(Protocol):
    """Combines several kernels into one launch, a CUDA graph, if the device can do that."""

    def graph(self, kernels: Sequence[tuple[Kernel, Words]]) -> Graph | None: ...

    def capturing(self, stream: int) -> bool: ...


class Graph(Protocol):
    def launch(self, stream: int) -> int: ...


class Config(ctypes.Structure):
    """The C structure CUlaunchConfig of cuda.h."""

    _fields_ = [
        ("grid_and_block", c_uint * 6),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    ]


class LaunchFrame:
    """The argument structs of several launches, and the prepared calls with these structs on one stream. Only one
    caller may use it at a time. With `grapher`, kernels are launched as one CUDA graph where that pays."""

    __slots__ = ("_graph", "_grapher", "entries", "ready", "slots", "steps", "stream", "words")

    def __init__(self, steps: Sequence[PreparedLaunch], stream: int, grapher: GraphMaker | None = None) -> None:
        kernels = [step.kernel for step in steps]
        self._grapher = grapher if len(steps) >= FEWEST and None not in kernels else None
        self._graph: Graph | None = None
        sizes = [max(len(step.words), 1) for step in steps]
        starts = [sum(sizes[:at]) for at in range(len(steps))]
        self.words: Words = (c_uint64 * max(sum(sizes), 1))()
        self.slots: list[list[tuple[int, int]]] = []
        self.steps: list[tuple[PreparedLaunch, Words]] = []
        for step, start, size in zip(steps, starts, sizes, strict=True):
            struct = (c_uint64 * size).from_buffer(self.words, 8 * start)
            for position, word in enumerate(step.words):
                struct[position] = word
            self.steps.append((step, struct))
            self.slots.append([(start + position, index) for position, index in step.slots])
        self.move(stream)

    def move(self, stream: int) -> None:
        """Prepares all calls again for the stream with this handle, which is used from now on."""
        self.stream = stream
        self.entries = [step.enter(struct, stream) for step, struct in self.steps]
        self.ready = [entry for entry in self.entries if entry is not None]

    def fill(self, pointers: Sequence[int]) -> None:
        """Writes the addresses of all buffers, in the order of the plan's buffers, into the structs."""
        words = self.words
        for slots in self.slots:
            for position, index in slots:
                words[position] = pointers[index]

    def launch(self, fail: Callable[[int], None]) -> None:
        """Makes all calls in order, or launches their graph; `fail(status)` raises an error for a status that is not
        0."""
        if self._grapher is not None and not self._grapher.capturing(self.stream):
            # Created at first use: the stream may have been captured before.
            graph = self._graph or self._made(self._grapher)
            if graph is not None:
                status = graph.launch(self.stream)
                if status:
                    fail(status)
                return
        for function, arguments in self.ready:
            status = function(*arguments)
            if status:
                fail(status)

    def _made(self, grapher: GraphMaker) -> Graph | None:
        self._graph = grapher.graph([(step.kernel, words) for step, words in self.steps if step.kernel])
        if self._graph is None:
            self._grapher = None
        return self._graph

    def launch_one(self, step: int, pointers: Sequence[int], fail: Callable[[int], None]) -> None:
        """Makes the launch with the index `step`, after writing its pointers; `fail(status)` raises an error for a
        status that is not 0."""
        for position, index in self.slots[step]:
            self.words[position] = pointers[index]
        entry = self.entries[step]
        if entry is not None:
            status = entry[0](*entry[1])
            if status:
                fail(status)


def kernel_entry(
    launch: Callable[..., int], function: c_void_p, geometry: Sequence[int], words: Words, stream: int
) -> Entry:
    """Returns the prepared call of cuLaunchKernelEx (function, arguments) for a kernel with one struct argument,
    `words`. `geometry` has seven numbers: grid (3), block (3), dynamic shared memory in bytes.

    The function takes four arguments, which are converted only here; cuLaunchKernel takes eleven, each of which ctypes
    converts at every call."""
    config = Config((c_uint * 6)(*geometry[:6]), geometry[6], stream, None, 0)
    parameters = (c_void_p * 1)(ctypes.addressof(words))
    # The references in the arguments keep the structs alive.
    return launch, (ctypes.byref(config), function, parameters, None)
