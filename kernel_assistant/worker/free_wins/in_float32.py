"""Wraps a 16-bit module so that it computes in float32 and is called as before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..user_module.inputs import DTYPES

HALVES = (torch.float16, torch.bfloat16)
_BY_NAME = {name: dtype for dtype, name in DTYPES.items()}


class InFloat32(torch.nn.Module):
    """Converts 16-bit inputs to float32, calls `child`, whose parameters are float32, and converts its tensor outputs
    to `dtypes` (names such as "bf16"), one for each output in order."""

    def __init__(self, child: torch.nn.Module, dtypes: Sequence[str]) -> None:
        super().__init__()
        self.child, self.dtypes = child, tuple(_BY_NAME[name] for name in dtypes)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(_widened, (args, kwargs))
        leaves, tree = pytree.tree_flatten(self.child(*args, **kwargs))
        dtypes = iter(self.dtypes)
        given = [leaf.to(next(dtypes)) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        return pytree.tree_unflatten(given, tree)


def _widened(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in HALVES else value
