"""Compares the layouts of tensors with those of earlier calls: class, sizes, strides, dtype and device of each tensor.

Uses PyTorch's own guards: a model has hundreds of tensors, and they compare all of them in the time that Python needs
to compare twenty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch

_CLASSES = (torch.Tensor, torch.nn.Parameter)
#: The number of launchers of an instance that are found by one comparison. After MOST_STORED calls with other layouts,
#: only each MOST_STORED-th is stored: a program whose sizes change all the time gains nothing.
MOST, MOST_STORED = 4, 64

Launcher = TypeVar("Launcher")
_grad_enabled = torch.is_grad_enabled


class LaunchersByLayout(Generic[Launcher]):
    """Stores the launchers of one module instance by the layout (class, sizes, strides, dtype, device) of all tensors
    of a call: arguments, parameters and buffers. Whether gradients are recorded is part of the layout."""

    def __init__(self) -> None:
        self._known: tuple[tuple[Callable[..., bool], bool, Launcher], ...] = ()
        self._offered = 0

    def find(self, values: Sequence[Any]) -> Launcher | None:
        """Returns the launcher that was stored for tensors with the layout of `values`; None if there is none, or if a
        value is no tensor."""
        grad = _grad_enabled()
        for check, recorded, launcher in self._known:
            if recorded is grad and check(*values):
                return launcher
        return None

    def store(self, tensors: Sequence[torch.Tensor], launcher: Launcher) -> None:
        """Stores the launcher of a call that was accepted, in place of the oldest one if there are MOST. After
        MOST_STORED calls, stores only each MOST_STORED-th."""
        self._offered += 1
        if self._offered > MOST_STORED and self._offered % MOST_STORED:
            return
        guards = _guards(tensors)
        if guards is not None:
            self._known = (*self._known[1 - MOST :], (guards.check, _grad_enabled(), launcher))

    def clear(self) -> None:
        """Forgets all launchers."""
        self._known, self._offered = (), 0


class ParameterLayouts:
    """Caches the layout (shapes, dtypes, devices, strides) of a module's tensors. The layout is part of the key under
    which `Guard` stores launchers."""

    def __init__(self) -> None:
        #: By whether inference mode is on, which PyTorch's guards regard as another layout.
        self._known: dict[bool, tuple[Any, LayoutKey]] = {}

    def of(self, tensors: Sequence[torch.Tensor]) -> LayoutKey | None:
        """Returns the key for the layout of these tensors; None if one is not a plain strided tensor or parameter."""
        mode = torch.is_inference_mode_enabled()
        known = self._known.get(mode)
        if known is not None and known[0].check(*tensors):
            return known[1]
        if not all(map(is_plain, tensors)):
            return None
        key = LayoutKey(tensors)
        guards = _guards(tensors)
        if guards is not None:
            self._known[mode] = guards, key
        return key


class LayoutKey:
    """The shapes, dtypes, devices and strides of tensors as a key of dictionaries, with a hash that is computed once.
    `requires_grad` says whether one of the tensors requires a gradient; it is no part of the key."""

    __slots__ = ("_hash", "_parts", "requires_grad")

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._parts = tuple(layout_of(tensor) for tensor in tensors)
        self._hash = hash(self._parts)
        self.requires_grad = any(tensor.requires_grad for tensor in tensors)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, LayoutKey) and self._parts == other._parts)


def is_plain(value: Any) -> bool:
    """Whether kernels can read a value: a strided tensor or parameter, not of a subclass, that PyTorch does not mark as
    negated (the values of such a view are not those in memory)."""
    return type(value) in _CLASSES and value.layout is torch.strided and not value.is_neg()


def layout_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device, tensor.stride()


def _guards(tensors: Sequence[torch.Tensor]) -> Any:
    """Returns an object whose `check(*tensors)` says whether tensors have the same layout as these. Returns None if
    this PyTorch has no such object, or if a tensor occurs twice, which `check` refuses."""
    make = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    try:
        guards = make and make.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    except (AttributeError, TypeError):
        return None
    return guards if guards is not None and guards.check(*tensors) else None
