"""Buffers that a plan derives from parameters once, such as packed weights; derived again when a parameter changes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..runner import executor
from ..runner import plan as plans
from ..runner.pytorch.tensors import DTYPES

#: Instances and streams whose packed buffers are kept; the oldest goes first.
_KEPT = 16


class PackedParameters:
    """Runs the plan's `prepare` launches and keeps their outputs.

    A parameter counts as unchanged while it is the same tensor object at the same address and version. In-place writes
    through `.data` do not change the version: PyTorch itself cannot see them either.
    """

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
        self._kept: list[tuple[list[Any], tuple[Any, ...], list[torch.Tensor]]] = []

    def pointers(self, tensors: Sequence[torch.Tensor], pointers: list[int], stream: int) -> list[int]:
        """Addresses of the packed buffers. `pointers` are those of inputs, outputs and scratch."""
        read = [tensors[index] for index in self._read]
        # An inference tensor has no version, so buffers derived from it are never kept.
        tracked = not any(tensor.is_inference() for tensor in read)
        state = (stream, *((tensor.data_ptr(), tensor._version) for tensor in read)) if tracked else ()
        for references, known, packed in tuple(self._kept):
            if known == state and all(one() is tensor for one, tensor in zip(references, read, strict=True)):
                return [one.data_ptr() for one in packed]
        # In place where only values have changed: graphs of the plan have the addresses.
        again = self._again(read, stream) if tracked else None
        packed = again or [allocate() for allocate in self._allocate]
        addresses = [one.data_ptr() for one in packed]
        self._bound.run([*pointers, *addresses], stream)
        # What is packed during a capture is filled only when the graph is replayed.
        if tracked and not self._capturing():
            others = [kept for kept in self._kept if kept[2] is not packed]
            self._kept = [*others[1 - _KEPT :], ([weakref.ref(one) for one in read], state, packed)]
        return addresses

    def _again(self, read: list[torch.Tensor], stream: int) -> list[torch.Tensor] | None:
        """The buffers of the same parameters on the same stream, whose values are out of date. None during a capture,
        which must not change what others use."""
        if self._capturing():
            return None
        same = (
            packed
            for references, state, packed in tuple(self._kept)
            if state[0] == stream and all(one() is tensor for one, tensor in zip(references, read, strict=True))
        )
        return next(same, None)


def allocator(spec: dict[str, Any], dims: dict[str, int], device: torch.device) -> Callable[[], torch.Tensor]:
    shape, dtype = plans.shape(spec, dims), DTYPES[spec["dtype"]]
    if spec.get("strides") is None:
        return lambda: torch.empty(shape, dtype=dtype, device=device)
    strides = plans.strides(spec, dims)
    return lambda: torch.empty_strided(shape, strides, dtype=dtype, device=device)
