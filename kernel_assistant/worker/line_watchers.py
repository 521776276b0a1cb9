"""What is noted of each line: its time, its kernels, and what it reads and writes. One pass over the module each."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from .line_trace import Line

MARK = "kernel_assistant_line:"
#: Kernels of a line that are told, the longest first.
MOST_KERNELS = 8
#: Calls under the profiler; a power of two, so that shares of them add up exactly.
PROFILED = 4


class Clock:
    """Seconds of each line in one run, by the device's time line and by the host's clock, and how often it ran."""

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
        """After the device has been waited for."""
        if not self._cuda:
            return dict(self.host)
        found: defaultdict[Line, float] = defaultdict(float)
        for line, began, ended in self._spans:
            found[line] += float(began.elapsed_time(ended)) * 1e-3
        return dict(found)

    def _event(self) -> Any:
        if not self._cuda:
            return None
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


class Marks:
    """Names each line in the profiler's own time line."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def begin(self, line: Line) -> None:
        mark = torch.profiler.record_function(f"{MARK}{line[0]}:{line[1]}:{line[2]}")
        mark.__enter__()  # type: ignore[no-untyped-call]
        self._open.append(mark)

    def end(self, line: Line) -> None:
        self._open.pop().__exit__(None, None, None)


def kernels_of(call: Callable[[], object], cuda: bool) -> dict[Line, dict[str, list[float]]]:
    """Line → name → [calls, seconds] in a `call`, which runs under `Marks`: kernels, or on the CPU operators. Means of
    some calls."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(PROFILED):
            call()
        if cuda:
            torch.cuda.synchronize()
    found: dict[Line, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for event in profiler.events() or ():
        if event.name.startswith(MARK) or "CPU" not in str(event.device_type):
            continue
        if cuda:
            ran = [(kernel.name, float(kernel.duration)) for kernel in event.kernels]
        else:
            ran = [(event.name, float(event.self_cpu_time_total))]
        for line in _lines_around(event):
            for name, microseconds in ran:
                found[line][name][0] += 1 / PROFILED
                found[line][name][1] += microseconds * 1e-6 / PROFILED
    return found


def _lines_around(event: Any) -> set[Line]:
    found = set()
    parent = event.cpu_parent
    while parent is not None:
        if parent.name.startswith(MARK):
            function, first, last = parent.name[len(MARK) :].split(":")
            found.add((function, int(first), int(last)))
        parent = parent.cpu_parent
    return found


class _Moved:
    """What one execution of a line reads and writes, by storage."""

    def __init__(self) -> None:
        self.read: dict[StorageWeakRef, int] = {}
        self.written: dict[StorageWeakRef, int] = {}


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes that each line would have to move if it were one kernel, and the operations of its products."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._open: list[_Moved] = []
        self._lines: list[Line] = []
        self.read: defaultdict[Line, int] = defaultdict(int)
        self.written: defaultdict[Line, int] = defaultdict(int)
        self.flops: defaultdict[Line, int] = defaultdict(int)

    def begin(self, line: Line) -> None:
        self._open.append(_Moved())
        self._lines.append(line)

    def end(self, line: Line) -> None:
        moved = self._open.pop()
        self._lines.pop()
        self.read[line] += sum(moved.read.values())
        # What is gone by now was an intermediate value of the line.
        left = [size for storage, size in moved.written.items() if not storage.expired()]  # type: ignore[no-untyped-call]
        self.written[line] += sum(left)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self._open:
            self._note(func, args, kwargs, result)
        return result

    def _note(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            flops = int(count(*args, **kwargs, out_val=result))
            for line in set(self._lines):
                self.flops[line] += flops
        inputs, outputs = _tensors((args, kwargs)), _tensors(result)
        reads, writes = _by_storage(inputs), _by_storage(outputs)
        changes = any(one.alias_info is not None and one.alias_info.is_write for one in func._schema.arguments)
        if not changes and (set(writes) <= set(reads) or "empty" in func.__name__):
            return  # a view, or memory alone
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
    """Of the elements that there are in memory: an expanded dimension counts once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride else min(size, 1)
    return count * tensor.element_size()
