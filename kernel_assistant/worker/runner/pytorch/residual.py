"""Makes the residual calls of a plan: runs PyTorch's own operators on the plan's buffers. Imported only for plans that
have residual calls; needs torch.

See docs/residual.md. A result stays where PyTorch allocated it, and later launches get its address."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from ..plan import BoundResidualCall, BoundValue
from .aten import Operator, Values, in_place
from .tensors import DTYPES, CudaArrayInterface

#: Alignment in bytes that kernels may expect of a buffer's address.
ALIGNMENT = 64

#: One tensor for each buffer of a plan; None if no residual call needs it, or before it is set.
Tensors = list[Any]


class PyTorchCall:
    """A residual call (operators of PyTorch in a plan) for known sizes. `given` are the indices of buffers without
    memory of their own: the result of the call is used as the buffer. The same happens for an output for which the
    caller passes no tensor."""

    def __init__(self, launch: BoundResidualCall, device: str, given: frozenset[int]) -> None:
        self.symbol, self.reads, self.results = launch.symbol, launch.reads, launch.results
        self._given = given
        nodes = [*launch.nodes[:-1], in_place(launch.nodes)]
        #: Operators of other libraries may do anything on the host, which a CUDA graph would leave out.
        self.is_pytorchs = not any("::" in node["op"] for node in nodes)
        self._operators = [Operator(node, launch.dims, device) for node in nodes]
        # The operator may write an output of the module directly to its memory.
        last, only = self._operators[-1], self.results[0]
        self._writes = len(self.results) == 1 and only.buffer not in given and last.name == only.name

    def run(self, tensors: Tensors, pointers: list[int]) -> None:
        """Reads operands from `tensors`; writes results there, and the addresses of new ones into `pointers`. Both
        lists are indexed by buffer."""
        values: Values = {value.name: _laid(tensors[value.buffer], value) for value in self.reads}
        storages = {tensor.untyped_storage().data_ptr() for tensor in values.values()}
        *before, last = self._operators
        for operator in before:
            operator(values)
        out = tensors[self.results[0].buffer] if self._writes else None
        if out is not None and last.write(values, _laid(out, self.results[0])):
            return
        last(values)
        for value in self.results:
            result, output = values[value.name], tensors[value.buffer]
            if value.buffer not in self._given and output is not None:
                _laid(output, value).copy_(result)
                continue
            if not _fits(result, value) or result.untyped_storage().data_ptr() in storages:
                held = torch.empty_strided(value.shape, value.strides, dtype=result.dtype, device=result.device)
                result = held.copy_(result)
            tensors[value.buffer] = result
            pointers[value.buffer] = result.data_ptr()


#: An address, a buffer's spec, and its shape, strides and bytes.
Held = tuple[int, dict[str, Any], tuple[Sequence[int], Sequence[int], int]]


def tensors_at(held: Sequence[Held], device: str) -> list[torch.Tensor]:
    """Returns tensors over existing memory; `held` has (address, spec, (shape, strides, bytes)) of each. If one tensor
    ends where another begins, its storage includes the other, because cuDNN takes the weights of an LSTM as one
    piece."""
    reach: dict[int, int] = {}
    for address, _, (_, _, size) in sorted(held, key=lambda one: one[0], reverse=True):
        reach[address] = max(reach.get(address, 0), size + reach.get(address + size, 0) if size else 0)
    return [_tensor_at(address, reach[address], spec, sizes, device) for address, spec, sizes in held]


def _tensor_at(
    address: int, reach: int, spec: dict[str, Any], sizes: tuple[Sequence[int], Sequence[int], int], device: str
) -> torch.Tensor:
    shape, strides, size = sizes
    dtype = DTYPES[spec["dtype"]]
    if not size:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)
    reach -= reach % dtype.itemsize
    if device == "cpu":
        flat = torch.frombuffer((ctypes.c_ubyte * reach).from_address(address), dtype=torch.uint8)
    else:
        flat = torch.as_tensor(CudaArrayInterface(address, reach), device=device)
    return flat.view(dtype).as_strided(shape, strides)


def _laid(tensor: torch.Tensor, value: BoundValue) -> torch.Tensor:
    """Returns a view of a buffer with the shape and strides of the value in the graph."""
    if tensor.shape == value.shape and tensor.stride() == value.strides:
        return tensor
    return tensor.as_strided(value.shape, value.strides)


def _fits(tensor: torch.Tensor, value: BoundValue) -> bool:
    same = all(
        size == 1 or one == other for size, one, other in zip(value.shape, tensor.stride(), value.strides, strict=True)
    )
    return same and not tensor.data_ptr() % ALIGNMENT and tensor.dtype is DTYPES[value.dtype]
