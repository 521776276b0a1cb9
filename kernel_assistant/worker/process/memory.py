"""Refuses an allocation that cannot fit before it is made: Linux would grant it and kill the process when the memory is
used."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .gpu_share import room
from .worker_errors import SMALLER, TaskError

#: Share of the free memory that a module and its inputs may take: outputs, intermediates and others need the rest.
_SHARE = 0.9

_FACTORIES = frozenset(
    {
        torch.arange,
        torch.empty,
        torch.empty_strided,
        torch.eye,
        torch.full,
        torch.linspace,
        torch.ones,
        torch.rand,
        torch.randint,
        torch.randn,
        torch.randperm,
        torch.zeros,
    }
)


def available_bytes(device: str) -> int:
    """Returns the bytes that can still be allocated on `device` ("cpu" or "cuda:0")."""
    if device.startswith("cuda"):
        # torch frees memory that it keeps but does not use when an allocation needs it.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return max(0, min(int(torch.cuda.mem_get_info(device)[0]) + kept, room(torch.device(device))))
    return min(_meminfo(), _cgroup())


def require_bytes(wanted: int, device: str, what: str) -> None:
    """Raises TaskError out_of_memory if `wanted` bytes do not fit into 90% of the free memory of `device`; the message
    says that `what` needs them."""
    free = available_bytes(device)
    if wanted > _SHARE * free:
        raise TaskError(
            "out_of_memory",
            f"{what} needs {wanted / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are available on {device}",
            SMALLER,
        )


class MemoryGuard(TorchFunctionMode):
    """While active, tensor factories (`torch.zeros`, …) raise TaskError out_of_memory instead of allocating tensors
    that would not fit on `device`; the message names `what`."""

    def __init__(self, device: str, what: str) -> None:
        super().__init__()
        self.device = device
        self.what = what

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _FACTORIES and kwargs.get("out") is None:
            require_bytes(_planned_bytes(func, args, kwargs), self.device, self.what)
        return func(*args, **kwargs)


def _planned_bytes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Returns the bytes of the tensor that the call would create, from a run on the meta device; 0 if the call itself
    is wrong, in which case the real call raises."""
    plain = {key: value for key, value in kwargs.items() if key not in ("generator", "pin_memory", "device")}
    try:
        result = func(*args, **plain, device="meta")
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return 0
    return int(result.numel() * result.element_size())


def _meminfo() -> int:
    """Returns MemAvailable of /proc/meminfo in bytes; a very large number without that file (not Linux)."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 1 << 62


def _cgroup() -> int:
    """Returns the bytes that the control group of a container, version 2 or 1, still allows; a very large number if
    there is no limit."""
    root = "/sys/fs/cgroup"
    for limit, usage in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            with open(os.path.join(root, limit)) as high, open(os.path.join(root, usage)) as now:
                return max(0, int(high.read()) - int(now.read()))
        except (OSError, ValueError):  # the file is absent or says "max"
            continue
    return 1 << 62
