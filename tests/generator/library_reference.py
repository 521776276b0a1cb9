"""Runs library launches as docs/libraries.md describes them, with PyTorch on the CPU. The generator's plan is right if
it then gives the same results as the module.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from kernel_assistant.worker.runner import plan as plans
from tests.generator.harness import TORCH


def run_plan(plan: dict[str, Any], dims: dict[str, int], inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of a plan of library launches. Every buffer is flat memory, in which unwritten elements are NaN."""
    memory: list[torch.Tensor] = []
    for spec in plans.buffers(plan):
        size = plans.byte_size(spec, dims) // plans.DTYPE_BYTES[spec["dtype"]]
        block = torch.full((size,), float("nan"), dtype=TORCH[spec["dtype"]])
        memory.append(block)
        if spec["name"] in inputs:
            _as_tensor(block, spec, dims).copy_(inputs[spec["name"]])
    for launch in plans.bind_launches(plan, dims):
        assert isinstance(launch, plans.BoundLibraryCall)
        used = {field: memory[index] for field, (_, index) in zip(launch.fields, launch.slots, strict=True)}
        (_matmul if launch.library == "cublaslt.matmul" else _convolution)(launch, used)
    first = len(plan["inputs"])
    found = memory[first : first + len(plan["outputs"])]
    return [_as_tensor(block, spec, dims) for block, spec in zip(found, plan["outputs"], strict=True)]


def _as_tensor(block: torch.Tensor, spec: dict[str, Any], dims: dict[str, int]) -> torch.Tensor:
    return block.as_strided(plans.shape(spec, dims), plans.strides(spec, dims))


def _matmul(launch: plans.BoundLibraryCall, used: dict[str, torch.Tensor]) -> None:
    sizes, settings = launch.sizes, launch.settings
    m, n, k, batch = (sizes[name] for name in ("m", "n", "k", "batch"))

    def matrices(field: str, rows: int, columns: int, transposed: bool = False) -> torch.Tensor:
        letter = "o" if field == "out" else field.removesuffix("_low")
        shape = (columns, rows) if transposed else (rows, columns)
        found = used[field].as_strided((batch, *shape), (sizes[f"stride_{letter}"], sizes[f"ld{letter}"], 1))
        return found.transpose(1, 2) if transposed else found

    left = matrices("a", m, k, settings["transpose_a"] == "1")
    right = matrices("b", k, n, settings["transpose_b"] == "1")
    if settings["compute"] == "split":
        # Parts that TF32 holds, and what it cuts off.
        assert not any(bool((side.contiguous().view(torch.int32) & 0x1FFF).any()) for side in (left, right))
        left = left + matrices("a_low", m, k, settings["transpose_a"] == "1")
        right = right + matrices("b_low", k, n, settings["transpose_b"] == "1")
    value = float(settings["alpha"]) * (left @ right)
    if "c" in used:
        value = value + float(settings["beta"]) * matrices("c", m, n)
    if "bias" in used:
        value = value + used["bias"][:n]
    matrices("out", m, n).copy_(_activated(value, settings["epilogue"]))


def _convolution(launch: plans.BoundLibraryCall, used: dict[str, torch.Tensor]) -> None:
    sizes, settings = launch.sizes, launch.settings
    stride, padding, dilation = (
        [int(part) for part in settings[key].split(",")] for key in ("stride", "padding", "dilation")
    )
    rank, groups = len(stride), int(settings["groups"])
    transposed = launch.library == "cudnn.conv_transpose"
    n, c, k = sizes["n"], sizes["c"], sizes["k"]
    inner, kernel, outer = ([sizes[f"{letter}{at}"] for at in range(rank)] for letter in "ifo")

    def laid_out(field: str, shape: list[int]) -> torch.Tensor:
        if settings["layout"] == "nchw":
            return used[field].reshape(-1)[: torch.Size(shape).numel()].view(shape)
        last = [shape[0], *shape[2:], shape[1]]
        flat = used[field].reshape(-1)[: torch.Size(shape).numel()].view(last)
        return flat.permute(0, len(shape) - 1, *range(1, len(shape) - 1))

    x = laid_out("x", [n, c, *inner])
    w = laid_out("w", [c, k // groups, *kernel] if transposed else [k, c // groups, *kernel])
    if transposed:
        function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
        plain = [
            (size - 1) * hop - 2 * pad + step * (extent - 1) + 1
            for size, hop, pad, step, extent in zip(inner, stride, padding, dilation, kernel, strict=True)
        ]
        extra = [size - less for size, less in zip(outer, plain, strict=True)]
        value = function(x, w, None, stride, padding, extra, groups, dilation)  # type: ignore[operator]
    else:
        value = (F.conv1d, F.conv2d, F.conv3d)[rank - 1](x, w, None, stride, padding, dilation, groups)  # type: ignore[operator]
    if "bias" in used:
        value = value + used["bias"][:k].view(1, k, *[1] * rank)
    if "z" in used:
        value = value + laid_out("z", [n, k, *outer])
    laid_out("out", [n, k, *outer]).copy_(_activated(value, settings["epilogue"]))


def _activated(value: torch.Tensor, epilogue: str) -> torch.Tensor:
    if epilogue.endswith("gelu"):
        return F.gelu(value, approximate="tanh")
    if epilogue.endswith("silu"):
        return F.silu(value)
    return F.relu(value) if epilogue.endswith("relu") else value
