"""Finds out from which operators and modules a result was computed, with names as a task's source declares them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

#: Other names of binary operators: the reflected ones and those of true division.
_SAME = {"truediv": "div", "rtruediv": "div", "radd": "add", "rsub": "sub", "rmul": "mul", "rpow": "pow"}


def plain(name: str) -> str:
    """Returns the plain name of an operator: without module path, in lower case and without underscores.
    `torch.nn.functional.log_softmax`, `Tensor.log_softmax` and `LogSoftmax` have the same plain name, and so have `x /
    2`, `2 / x` and `torch.div`."""
    base = name.rpartition(".")[2].replace("_", "").lower()
    return _SAME.get(base, base)


def used(model: nn.Module, inputs: Iterable[Any]) -> frozenset[str]:
    """Returns the plain names of functions and classes on which an output of `model` depends. Unused results do not
    count. A torch function counts as one function, even if it calls other functions."""
    seen = _Seen()
    hooks = [part.register_forward_hook(seen.module) for part in model.modules()]
    try:
        with seen, torch.no_grad():
            return seen.of(model(*inputs))
    finally:
        for hook in hooks:
            hook.remove()


class _Seen(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self._names: dict[int, frozenset[str]] = {}
        # Keeps tensors alive, because a new object could get the id of a deleted one.
        self._kept: list[torch.Tensor] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        before = self.of((args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        self._mark(result, before | {plain(getattr(func, "__name__", ""))})
        return result

    def module(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """A forward hook that adds the module's name, and the names recorded for its inputs, to the names recorded for
        its output."""
        self._mark(output, self.of(output) | self.of(inputs) | {plain(type(module).__name__)})

    def of(self, values: Any) -> frozenset[str]:
        empty: frozenset[str] = frozenset()
        return empty.union(*(self._names.get(id(leaf), frozenset()) for leaf in tree_leaves(values)))

    def _mark(self, values: Any, names: frozenset[str]) -> None:
        for leaf in tree_leaves(values):
            if isinstance(leaf, torch.Tensor):
                self._names[id(leaf)] = self._names.get(id(leaf), frozenset()) | names
                self._kept.append(leaf)
