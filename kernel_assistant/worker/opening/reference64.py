"""Runs a module in float64, even where its code names a lower dtype, to get (nearly) exact results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ..applied.strided import laid_out
from ..user_module.copying import deep_copy

_LOW = frozenset({torch.float32, torch.float16, torch.bfloat16})
_CASTS = frozenset({torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16})


class Float64Mode(TorchFunctionMode):
    """While active, `x.float()`, `x.to(torch.bfloat16)`, `torch.zeros(3, dtype=torch.float32)` all give float64."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _CASTS:
            return args[0].double()
        named = {key: _promoted(value) for key, value in (kwargs or {}).items()}
        return func(*(_promoted(value) for value in args), **named)


@contextlib.contextmanager
def float64_arithmetic() -> Iterator[None]:
    """Context manager: within the block, new floating tensors are float64, by default and where a lower dtype is
    named."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Float64Mode():
            yield
    finally:
        torch.set_default_dtype(before)


def float64_copy(model: torch.nn.Module) -> torch.nn.Module:
    """Returns a deep copy whose floating parameters, buffers and tensor attributes are float64."""
    double = deep_copy(model).double()
    for module in double.modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and value.dtype in _LOW:
                setattr(module, name, value.double())
    return double


def upcast(tree: Any) -> Any:
    """Returns the pytree with every floating tensor converted to float64. Strides are kept, because a module may read
    memory by its strides."""
    return pytree.tree_map(
        lambda leaf: _wide(leaf) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf, tree
    )


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    wide = tensor.double()
    return wide if wide.stride() == tensor.stride() else laid_out(wide, tensor.stride())


def _promoted(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _LOW else value
