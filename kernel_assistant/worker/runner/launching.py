"""The launches of a plan with their foreign calls made ready: one call patches pointers and runs down a list.

Standard library only. Why so, and what it costs: docs/launching.md.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_uint, c_uint64, c_void_p
from typing import Any, NamedTuple

Words = ctypes.Array[c_uint64]
#: A foreign function and its arguments, which live as long as the frame. It returns a status, 0 or None if all is well.
Entry = tuple[Callable[..., Any], tuple[Any, ...]]


class Prepared(NamedTuple):
    """One launch with its sizes known.

    `words` are the integers of its argument struct, `slots` which of them are pointers to which buffer. `enter` makes
    the call over a struct on a stream ready, None where there is nothing to launch.
    """

    words: list[int]
    slots: list[tuple[int, int]]
    enter: Callable[[Words, int], Entry | None]


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid_and_block", c_uint * 6),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    ]


class Frame:
    """Argument structs of launches and the calls over them, on one stream. For one caller at a time."""

    __slots__ = ("_steps", "entries", "ready", "slots", "stream", "words")

    def __init__(self, steps: Sequence[Prepared], stream: int) -> None:
        sizes = [max(len(step.words), 1) for step in steps]
        starts = [sum(sizes[:at]) for at in range(len(steps))]
        self.words: Words = (c_uint64 * max(sum(sizes), 1))()
        self.slots: list[list[tuple[int, int]]] = []
        self._steps: list[tuple[Prepared, Words]] = []
        for step, start, size in zip(steps, starts, sizes, strict=True):
            struct = (c_uint64 * size).from_buffer(self.words, 8 * start)
            for position, word in enumerate(step.words):
                struct[position] = word
            self._steps.append((step, struct))
            self.slots.append([(start + position, index) for position, index in step.slots])
        self.move(stream)

    def move(self, stream: int) -> None:
        """Launch on another stream from now on."""
        self.stream = stream
        self.entries = [step.enter(struct, stream) for step, struct in self._steps]
        self.ready = [entry for entry in self.entries if entry is not None]

    def fill(self, pointers: Sequence[int]) -> None:
        """Write all buffers' addresses into the structs."""
        words = self.words
        for slots in self.slots:
            for position, index in slots:
                words[position] = pointers[index]

    def launch(self, fail: Callable[[int], None]) -> None:
        """Make all calls in order; `fail` raises for a status."""
        for function, arguments in self.ready:
            status = function(*arguments)
            if status:
                fail(status)

    def launch_one(self, step: int, pointers: Sequence[int], fail: Callable[[int], None]) -> None:
        """One launch, its pointers filled in first."""
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
    """The call of cuLaunchKernelEx for a kernel with one struct argument. `geometry`: grid, block, shared memory.

    It takes four ready arguments, cuLaunchKernel eleven, each of which ctypes converts at every call.
    """
    config = Config((c_uint * 6)(*geometry[:6]), geometry[6], stream, None, 0)
    parameters = (c_void_p * 1)(ctypes.addressof(words))
    # The structs are kept by the references in the arguments.
    return launch, (ctypes.byref(config), function, parameters, None)
