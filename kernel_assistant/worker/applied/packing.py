"""Keeps the buffers that a plan computes from parameters, such as packed weights; computes them again when a parameter
changes."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from ..runner import executor
from ..runner import plan as plans
from ..runner.pytorch.tensors import DTYPES

_version, _referent = operator.attrgetter("_version"), weakref.ref.__call__
#: By kind of device, the allocator of compiled programs: it takes sizes, strides and dtype, and a third of the host's
#: time of `torch.empty`.
_EMPTY: dict[str, Callable[..., torch.Tensor]] = {
    "cpu": torch._C._dynamo.guards._empty_strided_cpu,  # type: ignore[attr-defined]
    "cuda": torch._C._dynamo.guards._empty_strided_cuda,  # type: ignore[attr-defined]
}
#: Instances and streams whose packed buffers are kept; the oldest goes first.
_KEPT = 16


class PackedParameters:
    """Runs the launches in the plan's list `prepare` and keeps their outputs, the packed buffers.

    A parameter counts as unchanged while it is the same tensor object at the same address and version. In-place writes
    through `.data` do not change the version: PyTorch itself cannot see them either."""

    def __init__(
        self,
        plan: dict[str, Any],
        dims: dict[str, int],
        module: executor.CpuModule | executor.CudaModule,
        device: torch.device,
    ) -> None:
        self._bound = executor.bind(plan, dims, module, "prepare")
        used = {value for launch in plan.get("prepare", ()) for _, value in launch["args"]}
        self._read = [index for index, spec in enumerate(plan["inputs"]) if spec["name"] in used]
        self._allocate = [allocator(spec, dims, device) for spec in plan["packed"]]
        self._capturing = torch.cuda.is_current_stream_capturing if device.type == "cuda" else lambda: False
        self._kept: list[_Kept] = []

    def pointers(self, tensors: Sequence[torch.Tensor], pointers: list[int], stream: int) -> list[int]:
        """Returns the addresses of the packed buffers, after filling them if a parameter has changed. `tensors` are the
        plan's inputs; `pointers` holds the addresses of inputs, outputs and scratch buffers; `stream` is the driver's
        handle."""
        read = [tensors[index] for index in self._read]
        try:
            state = [stream, *(pointers[index] for index in self._read), *map(_version, read)]
            tracked = True
        except RuntimeError:
            # An inference tensor has no version, so buffers derived from it are never kept.
            state, tracked = [], False
        for kept in tuple(self._kept):
            if kept.state == state and kept.is_of(read):
                return kept.addresses
        # In place where only values have changed: graphs of the plan have the addresses.
        again = self._again(read, stream) if tracked else None
        packed = again or [allocate() for allocate in self._allocate]
        addresses = [one.data_ptr() for one in packed]
        self._bound.run([*pointers, *addresses], stream)
        # What is packed during a capture is filled only when the graph is replayed.
        if tracked and not self._capturing():
            others = [kept for kept in self._kept if kept.packed is not packed]
            references = [weakref.ref(one) for one in read]
            self._kept = [*others[1 - _KEPT :], _Kept(references, state, packed, addresses)]
        return addresses

    def _again(self, read: list[torch.Tensor], stream: int) -> list[torch.Tensor] | None:
        """Returns the packed buffers that were computed earlier from the same parameters on the same stream, for the
        caller to fill with new values; None if there are none. None also during a CUDA graph capture, which must not
        change buffers that other calls use."""
        if self._capturing():
            return None
        same = (kept.packed for kept in tuple(self._kept) if kept.state[0] == stream and kept.is_of(read))
        return next(same, None)


class _Kept(NamedTuple):
    """Packed buffers with their addresses, weak references to the parameters from which they were computed, and the
    state at that time: the stream, then the addresses and versions of the parameters."""

    references: list[weakref.ref[torch.Tensor]]
    state: list[int]
    packed: list[torch.Tensor]
    addresses: list[int]

    def is_of(self, read: list[torch.Tensor]) -> bool:
        return all(map(operator.is_, map(_referent, self.references), read))


def allocator(spec: dict[str, Any], dims: dict[str, int], device: torch.device) -> Callable[[], torch.Tensor]:
    """Returns a function that makes a tensor with the dtype, shape and strides of `spec` at the sizes `dims`, and
    undefined values. Call it while `device` is the current one."""
    shape, strides, dtype = plans.shape(spec, dims), plans.strides(spec, dims), DTYPES[spec["dtype"]]
    return partial(_EMPTY[device.type], shape, strides, dtype)


def device_bytes(size: int) -> torch.Tensor:
    """Returns a uint8 tensor of shape [size] on the current GPU with undefined values."""
    return _EMPTY["cuda"]((size,), (1,), torch.uint8)
