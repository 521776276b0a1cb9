"""Counts the floating-point operations that a call needs at least: those of its float32 matrix products and
convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

#: Winograd's F(4×4, 3×3) computes a convolution with a quarter of the multiplications that its definition has
#: (Lavin and Gray, 2016).
WINOGRAD = 4


def flops_of(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """Returns the number of floating-point operations of one operator call by its definition; 0 unless it is a matrix
    product or a convolution. `func` is the ATen overload, `result` what the call returned."""
    count = flop_registry.get(func._overloadpacket)
    return 0 if count is None else int(count(*args, **kwargs, out_val=result))


def least_flops(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """Returns a lower bound of the float32 operations of one operator call, whose result is `result`; 0 for other
    dtypes, for which some processors have special units."""
    first = next((leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)), None)
    if first is None or first.dtype != torch.float32:
        return 0
    flops = flops_of(func, args, kwargs, result)
    return flops // WINOGRAD if "convolution" in str(func) else flops


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.flops += least_flops(func, args, kwargs, result)
        return result


def counted(call: Callable[[], object]) -> int:
    """Runs `call` and returns the sum of `least_flops` over the operators that it calls."""
    counter = _Counter()
    with torch.no_grad(), counter:
        call()
    return counter.flops
