"""Computes PyTorch's outputs with convolutions on tensor cores, as torch.compile does in cases where eager mode does
not.

PyTorch's flags allow TF32 in convolutions by default. Whether cuDNN uses tensor cores then depends on the order of
memory: for few channels it does with channels last, which is how torch.compile runs most convolutions
(`decide_layout_opt` in torch/_inductor/graph.py), and not with channels first. So torch.compile may be a thousand times
less exact than eager mode. A candidate may be as inexact as the less exact of the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._python_dispatch import TorchDispatchMode

from ..applied.precision import tf32_flags

#: torch.compile keeps the memory layout in graphs with at least this many nodes for each convolution.
NODES_PER_CONVOLUTION = 300


class ChannelsLastConvolutions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, float32 convolutions of images are computed in channels-last layout; their results get the layout
    that they would have had without this mode."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not torch.ops.aten.convolution.default or args[0].dim() != 4 or args[0].dtype != torch.float32:
            return func(*args, **(kwargs or {}))
        turned = [tensor.contiguous(memory_format=torch.channels_last) for tensor in args[:2]]
        result = func(*turned, *args[2:], **(kwargs or {}))
        return result if any(map(_is_channels_last, args[:2])) else result.contiguous()


@contextmanager
def products_in_tf32() -> Iterator[None]:
    """Context manager: within the block PyTorch computes float32 products and convolutions in TF32."""
    settings = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
    before = [one.fp32_precision for one in settings]
    for one in settings:
        one.fp32_precision = "tf32"
    try:
        yield
    finally:
        for one, precision in zip(settings, before, strict=True):
            one.fp32_precision = precision


def may_use_tensor_cores(program: ExportedProgram, device: str) -> bool:
    """Whether torch.compile may compute float32 convolutions of the program in TF32 although eager mode does not.

    False for graphs with grouped convolutions, whose order of memory torch.compile changes only if they are a small
    part.
    """
    if not device.startswith("cuda") or not tf32_flags()["cudnn"]:
        return False
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    convolutions = [node for node in nodes if _is_convolution(node)]
    if not convolutions or len(nodes) >= NODES_PER_CONVOLUTION * len(convolutions):
        return False
    return not any(map(_is_grouped, convolutions))


def _is_convolution(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    name = str(node.target).removeprefix("aten.")
    is_image = isinstance(value, torch.Tensor) and value.dtype == torch.float32 and value.dim() == 4
    return is_image and name.startswith("conv")


def _is_grouped(node: torch.fx.Node) -> bool:
    """Whether a convolution has several groups of more than one channel each."""
    x, w = (argument.meta["val"] for argument in node.args[:2] if isinstance(argument, torch.fx.Node))
    transposed = "transpose" in str(node.target) or (str(node.target).startswith("aten.convolution") and node.args[6])
    channels = node.meta["val"].shape[1] if transposed else x.shape[1]
    return bool(w.shape[1] != 1 and w.shape[1] != channels)


def _is_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()
