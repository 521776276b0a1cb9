"""Registers a plan as the torch operator `kernel_assistant::NAME`, with a fake implementation for tracing, once per
process.

If the same candidate is imported from several folders, they share the operator, and the implementation that was
registered last runs."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from ..runner.locks import ForkSafeLock
from ..runner.pytorch.tensors import DTYPES
from . import sizes
from .strided import copied

NAMESPACE = "kernel_assistant"
#: PyTorch takes at most 64 arguments. An operator of more tensors, as a whole network has, takes a list of them.
MOST_ARGUMENTS = 64
Run = Callable[..., list[torch.Tensor]]


class _Registry(types.ModuleType):
    """The state that all copies of this file in one process share: the torch library, and the implementation of each
    operator by name. Kept in `sys.modules`."""

    def __init__(self) -> None:
        super().__init__("_kernel_assistant_operators")
        self.library = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
        self.providers: dict[str, Run] = {}
        self.lock = ForkSafeLock()


def _registry() -> _Registry:
    fresh = _Registry()
    shared: Any = sys.modules.setdefault(fresh.__name__, fresh)
    return shared  # type: ignore[no-any-return]


def register(
    name: str, target: str, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]], run: Run
) -> Callable[..., Any]:
    """Returns the operator `kernel_assistant::NAME` on tensors that fit the specs `inputs`, defined at the first call
    for this name. It returns a tensor, or a tuple of tensors if there are several outputs.

    `run` gets tensors at aligned addresses and returns the list of outputs. Raises RuntimeError if torch refuses."""
    registry = _registry()
    with registry.lock:
        registry.providers[name] = run
        if not hasattr(getattr(torch.ops, NAMESPACE), name):
            _define(registry, name, target, inputs, outputs)
    operator: Callable[..., Any] = getattr(getattr(torch.ops, NAMESPACE), name).default
    return operator if len(inputs) <= MOST_ARGUMENTS else _of_a_list(operator)


def _of_a_list(operator: Callable[..., Any]) -> Callable[..., Any]:
    def call(*tensors: torch.Tensor) -> Any:
        return operator(list(tensors))

    return call


def _define(
    registry: _Registry, name: str, target: str, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]]
) -> None:
    listed = len(inputs) > MOST_ARGUMENTS
    arguments = "Tensor[] tensors" if listed else ", ".join(f"Tensor a{index}" for index in range(len(inputs)))
    single = len(outputs) == 1
    result = "Tensor" if single else "(" + ", ".join(["Tensor"] * len(outputs)) + ")"
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
    registry.library.define(f"{name}({arguments}) -> {result}", tags=tags)  # type: ignore[no-untyped-call]

    def implementation(*given: Any) -> Any:
        tensors = given[0] if listed else given
        outputs_list = registry.providers[name](*(_plain(tensor) for tensor in tensors))
        return outputs_list[0] if single else tuple(outputs_list)

    def fake(*given: Any) -> Any:
        tensors = given[0] if listed else given
        dims = sizes.match_shapes([spec["shape"] for spec in inputs], [tensor.shape for tensor in tensors])
        fakes = [_fake(spec, dims, tensors[0].device) for spec in outputs]
        return fakes[0] if single else tuple(fakes)

    key = "CUDA" if target == "cuda" else "CPU"
    registry.library.impl(name, implementation, key)  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=registry.library)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor, or a copy if its address is not a multiple of 64 bytes: a compiler may pass a view at any
    address, but kernels were verified on tensors as torch allocates them."""
    return copied(tensor) if tensor.data_ptr() & 63 else tensor


def _fake(spec: dict[str, Any], dims: dict[str, Any], device: torch.device) -> torch.Tensor:
    shape = [sizes.evaluate(size, dims) for size in spec["shape"]]
    if spec.get("strides") is None:
        return torch.empty(shape, dtype=DTYPES[spec["dtype"]], device=device)
    strides = [sizes.evaluate(stride, dims) for stride in spec["strides"]]
    return torch.empty_strided(shape, strides, dtype=DTYPES[spec["dtype"]], device=device)
