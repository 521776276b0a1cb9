"""The device's memory, which judges share: a problem is opened once there is enough for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bench.kernelbench.problems import executed

#: Bytes of a worker with its runner, also while it has no task.
CONTEXTS = 2 << 30
#: How often a judge has each tensor at once: in the judged dtype, in float64, and in memory that PyTorch keeps.
TIMES = 5
#: Bytes of a problem whose sizes are not known: it does not run beside one that has all the memory.
LEAST = 1 << 20
#: Most operators that are called for an estimate: without a device, recurrent layers are unrolled.
MOST_CALLS = 4000


class Memory:
    """What workers leave of a device's memory, in bytes. A problem that needs more waits until it is alone."""

    def __init__(self, device_bytes: int, workers: int) -> None:
        self.most = self._free = max(device_bytes - workers * CONTEXTS, 0)
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, count: int) -> Iterator[None]:
        """Waits for so many bytes, and holds them for the block."""
        count = min(count, self.most)
        with self._changed:
            self._changed.wait_for(lambda: count <= self._free)
            self._free -= count
        try:
            yield
        finally:
            with self._changed:
                self._free += count
                self._changed.notify_all()


class _Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of the largest value that is computed. Raises OverflowError after `MOST_CALLS` operators."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self._calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._calls += 1
        if self._calls > MOST_CALLS:
            raise OverflowError("a module of too many operators")
        result = func(*args, **(kwargs or {}))
        self.bytes = max(self.bytes, _bytes(result))
        return result


def needed_bytes(path: Path) -> int:
    """Estimates what judging a problem of KernelBench takes, from the sizes of its tensors. Nothing is computed."""
    total, largest = 0, _Largest()
    try:
        with torch.device("meta"), torch.no_grad(), largest:
            names = executed(path)
            inputs = names["get_inputs"]()
            total += _bytes(inputs)
            model = names["Model"](*names["get_init_inputs"]())
            total += _bytes([*model.parameters(), *model.buffers()])
            total += _bytes(model(*inputs))
    except Exception:  # noqa: BLE001 - a module that does not run without values
        pass
    return max(TIMES * (total + largest.bytes), LEAST)


def _bytes(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))
