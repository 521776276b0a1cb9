"""Makes an index out of range raise IndexError on a GPU before the operator runs, as it does on the CPU.

Without this the GPU's kernel ends with a device-side assert, which breaks the CUDA context of the whole process. Only
operators of PyTorch are checked; those of other libraries may still break the context.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Operators of graphs with which a call is guarded.
_NAMES = re.compile(r"index|gather|scatter|embedding|take|put|one_hot|nll_loss|cross_entropy|margin_loss|assert")


def may_refuse(program: torch.export.ExportedProgram | None) -> bool:
    """Whether a program has operators that check values on the device (indices, assertions), so that its calls need
    `guarded`; True if `program` is None."""
    if program is None:
        return True
    return any(_NAMES.search(str(node.target)) for node in program.graph.nodes if node.op == "call_function")


def guarded(model: torch.nn.Module, tensors: Iterable[torch.Tensor]) -> contextlib.AbstractContextManager[object]:
    """Returns a context manager within which the indices of a call on a GPU are checked. It does nothing on the CPU,
    whose operators check their indices themselves. `tensors` are the inputs of the call."""
    on_gpu = any(tensor.is_cuda for tensor in (*tensors, *model.parameters(), *model.buffers()))
    return IndexGuard() if on_gpu else contextlib.nullcontext()  # type: ignore[no-untyped-call] # torch's constructor


class IndexGuard(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's __init_subclass__
    """While active, checks the indices of every operator of PyTorch that is called. Raises IndexError, or RuntimeError
    for failed assertions of values."""

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        check = _CHECKS.get(_name(func))
        if check is not None:
            check(*args, **kwargs)
        return func(*args, **kwargs)


def _name(func: Any) -> str:
    space, _, name = str((getattr(func, "_schema", None) and func._schema.name) or "").partition("::")
    return name.removesuffix("_") if space == "aten" else ""


def _require(index: Any, size: int, lowest: int = 0, ignored: int | None = None) -> None:
    """Raises IndexError unless all values of `index` are `ignored` or in [lowest, size)."""
    if not isinstance(index, torch.Tensor) or index.numel() == 0 or index.dtype in (torch.bool, torch.uint8):
        return
    if ignored is not None:
        index = torch.where(index == ignored, max(lowest, 0), index)
    least, most = (int(value) for value in index.aminmax())
    if least < lowest or most >= size:
        wrong = least if least < lowest else most
        raise IndexError(f"index {wrong} is out of bounds for a dimension of size {size}")


def _size(tensor: torch.Tensor, dim: int) -> int:
    return tensor.shape[dim] if tensor.dim() else 1


def _along(tensor: torch.Tensor, dim: int, index: torch.Tensor, *others: Any, **named: Any) -> None:
    _require(index, _size(tensor, dim))


def _wrapping_along(tensor: torch.Tensor, dim: int, index: torch.Tensor, *others: Any, **named: Any) -> None:
    _require(index, _size(tensor, dim), -_size(tensor, dim))


def _by_tensors(tensor: torch.Tensor, indices: Any, *others: Any, **named: Any) -> None:
    dim = 0
    for index in indices:
        mask = index is not None and index.dtype in (torch.bool, torch.uint8)
        if index is not None and not mask:
            _require(index, tensor.shape[dim], -tensor.shape[dim])
        dim += index.dim() if mask else 1


def _rows(table: torch.Tensor, index: torch.Tensor, *others: Any, **named: Any) -> None:
    _require(index, table.shape[0])


def _flat(tensor: torch.Tensor, index: torch.Tensor, *others: Any, **named: Any) -> None:
    _require(index, tensor.numel(), -tensor.numel())


def _classes(
    scores: torch.Tensor,
    target: torch.Tensor,
    weight: Any = None,
    reduction: int = 1,
    ignore_index: int = -100,
    **named: Any,
) -> None:
    _require(target, scores.shape[1 if scores.dim() > 1 else 0], 0, ignore_index)


def _margin(scores: torch.Tensor, target: torch.Tensor, *others: Any, **named: Any) -> None:
    _require(target, scores.shape[-1])


def _shares(value: torch.Tensor, *others: Any, **named: Any) -> None:
    if value.numel() and not bool(((value >= 0) & (value <= 1)).all()):
        raise RuntimeError("all elements of input should be between 0 and 1")


def _asserted(value: torch.Tensor, message: str = "an assertion of the module failed", *others: Any) -> None:
    if not bool(value):
        raise RuntimeError(message)


_CHECKS: dict[str, Callable[..., None]] = {
    **dict.fromkeys(
        "index_select index_add index_copy index_reduce gather scatter scatter_add scatter_reduce".split(), _along
    ),
    "index_fill": _wrapping_along,
    **dict.fromkeys("index _unsafe_index index_put _unsafe_index_put _index_put_impl".split(), _by_tensors),
    **dict.fromkeys("embedding _embedding_bag _embedding_bag_forward_only".split(), _rows),
    **dict.fromkeys("take put".split(), _flat),
    **dict.fromkeys("nll_loss_forward nll_loss2d_forward".split(), _classes),
    "multi_margin_loss": _margin,
    "binary_cross_entropy": _shares,
    "_assert_async": _asserted,
}
