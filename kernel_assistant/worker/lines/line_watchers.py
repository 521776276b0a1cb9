"""Watchers of a module's lines: they measure each line's time, its kernels, and the bytes that it reads and writes.
Each of the three is measured in runs of its own."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..measuring.arithmetic import flops_of, least_flops
from .line_trace import Line

MARK = "kernel_assistant_line:"
#: Most kernels of a line that are reported, the longest first.
MOST_KERNELS = 8
#: Calls under the profiler; a power of two, so that shares of them add up exactly.
PROFILED = 4


class LineClock:
    """Measures the seconds of each line in one run, by CUDA events (`device()`) and by the host's clock (`host`), and
    counts how often it ran (`calls`)."""

    def __init__(self, cuda: bool) -> None:
        self._cuda = cuda
        self._open: list[tuple[Any, float]] = []
        self._spans: list[tuple[Line, Any, Any]] = []
        self.host: defaultdict[Line, float] = defaultdict(float)
        self.calls: defaultdict[Line, int] = defaultdict(int)

    def begin(self, line: Line) -> None:
        self._open.append((self._event(), time.perf_counter()))

    def end(self, line: Line) -> None:
        ended = time.perf_counter()
        event, began = self._open.pop()
        self.host[line] += ended - began
        self.calls[line] += 1
        if self._cuda:
            self._spans.append((line, event, self._event()))

    def device(self) -> dict[Line, float]:
        """Returns the seconds of each line on the device (on a CPU: those of the host's clock). Call it after the
        device has finished."""
        if not self._cuda:
            return dict(self.host)
        seconds: defaultdict[Line, float] = defaultdict(float)
        for line, began, ended in self._spans:
            seconds[line] += float(began.elapsed_time(ended)) * 1e-3
        return dict(seconds)

    def _event(self) -> Any:
        if not self._cuda:
            return None
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


class LineMarks:
    """Marks the beginning and the end of each line in the trace of torch's profiler."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def begin(self, line: Line) -> None:
        mark = torch.profiler.record_function(f"{MARK}{line[0]}:{line[1]}:{line[2]}")
        mark.__enter__()  # type: ignore[no-untyped-call]
        self._open.append(mark)

    def end(self, line: Line) -> None:
        self._open.pop().__exit__(None, None, None)


def kernels_of(call: Callable[[], object], cuda: bool) -> dict[Line, dict[str, list[float]]]:
    """Runs `call`, which has to mark its lines by `LineMarks`, a few times under torch's profiler. Returns, for each
    line, name → [calls, seconds] of its kernels (on a CPU: of its operators), averaged over the calls.
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    if cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(PROFILED):
            call()
        if cuda:
            torch.cuda.synchronize()
    kernels: dict[Line, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for event in profiler.events() or ():
        if event.name.startswith(MARK) or "CPU" not in str(event.device_type):
            continue
        if cuda:
            ran = [(kernel.name, float(kernel.duration)) for kernel in event.kernels]
        else:
            ran = [(event.name, float(event.self_cpu_time_total))]
        for line in _lines_around(event):
            for name, microseconds in ran:
                kernels[line][name][0] += 1 / PROFILED
                kernels[line][name][1] += microseconds * 1e-6 / PROFILED
    return kernels


def _lines_around(event: Any) -> set[Line]:
    lines = set()
    parent = event.cpu_parent
    while parent is not None:
        if parent.name.startswith(MARK):
            function, first, last = parent.name[len(MARK) :].split(":")
            lines.add((function, int(first), int(last)))
        parent = parent.cpu_parent
    return lines


class _LineBytes:
    """The bytes that one execution of a line reads and writes, by storage (the memory block of a tensor)."""

    def __init__(self) -> None:
        self.read: dict[StorageWeakRef, int] = {}
        self.written: dict[StorageWeakRef, int] = {}


class LineTraffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts, for each line, the bytes that it would have to move if it were one kernel (`read`, `written`), and the
    flops of its matrix products: `flops` by their definition, `least_flops` the smallest number that float32 arithmetic
    needs. It is both the mode under which the module runs and the watcher of its lines.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._open: list[_LineBytes] = []
        self._lines: list[Line] = []
        self.read: defaultdict[Line, int] = defaultdict(int)
        self.written: defaultdict[Line, int] = defaultdict(int)
        self.flops: defaultdict[Line, int] = defaultdict(int)
        self.least_flops: defaultdict[Line, int] = defaultdict(int)

    def begin(self, line: Line) -> None:
        self._open.append(_LineBytes())
        self._lines.append(line)

    def end(self, line: Line) -> None:
        moved = self._open.pop()
        self._lines.pop()
        self.read[line] += sum(moved.read.values())
        # A storage that is freed by now was an intermediate value of the line.
        left = [size for storage, size in moved.written.items() if not storage.expired()]  # type: ignore[no-untyped-call]
        self.written[line] += sum(left)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self._open:
            self._note(func, args, kwargs, result)
        return result

    def _note(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        flops, least = (count(func, args, kwargs, result) for count in (flops_of, least_flops))
        for line in set(self._lines) if flops else ():
            self.flops[line] += flops
            self.least_flops[line] += least
        inputs, outputs = _tensors((args, kwargs)), _tensors(result)
        reads, writes = _by_storage(inputs), _by_storage(outputs)
        changes = any(one.alias_info is not None and one.alias_info.is_write for one in func._schema.arguments)
        if not changes and (set(writes) <= set(reads) or "empty" in func.__name__):
            return  # a view, or an allocation without a value
        for moved in self._open:
            for storage, size in reads.items():
                if storage not in moved.written:
                    moved.read[storage] = max(size, moved.read.get(storage, 0))
            for storage, size in writes.items():
                moved.written[storage] = max(size, moved.written.get(storage, 0))


def _tensors(tree: Any) -> list[torch.Tensor]:
    leaves = (leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor))
    return [leaf for leaf in leaves if leaf.layout is torch.strided]


def _by_storage(tensors: list[torch.Tensor]) -> dict[StorageWeakRef, int]:
    return {StorageWeakRef(one.untyped_storage()): _bytes(one) for one in tensors}  # type: ignore[no-untyped-call]


def _bytes(tensor: torch.Tensor) -> int:
    """Returns the bytes of the tensor's elements in memory: an expanded dimension (stride 0) counts once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride else min(size, 1)
    return count * tensor.element_size()
