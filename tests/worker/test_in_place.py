"""Operators in place that we replace, and fake results that are known at once: graphs are those that torch makes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch._ops import OpOverload
from torch.nn import functional as F

from kernel_assistant.worker.graph import export
from kernel_assistant.worker.graph.fast_fakes import WITH_IN_PLACE
from kernel_assistant.worker.graph.in_place import out_of_place
from kernel_assistant.worker.process.worker_errors import TaskError
from tests.generator.harness import Function

IMAGES = torch.randn(4, 6, 8, 8)
Call = Callable[[torch.Tensor], Any]


def _activation(name: str) -> Call:
    return lambda x: getattr(torch.ops.aten, f"{name}_")(x * 2) + getattr(torch.ops.aten, name)(x)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU6(inplace=True))
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 6, 1), nn.SiLU(inplace=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        y += x
        y *= self.gate(y)
        return F.hardswish(y.sub_(x), inplace=True)


#: Those in which each operator in place is replaced.
ALONE: dict[str, Call | nn.Module] = {
    **{name: _activation(name) for name in WITH_IN_PLACE},
    "residual": Residual(),
    "leaky relu": lambda x: F.leaky_relu(x + 1, 0.3, inplace=True),
    "viewed behind": lambda x: (y := x * 2, y.relu_(), y.flatten(1))[2],
    "read behind": lambda x: (y := x * 2, y.relu_(), y + 1)[2],
    "itself": lambda x: (y := x * 2).add_(y),
    "read before": lambda x: (y := x * 2, y.exp(), y.relu_())[1:],
}
#: Those in which something else sees what is written, or the result has another type, shape or order.
SHARED: dict[str, Call] = {
    "input": lambda x: x.relu_() + 1,
    "view": lambda x: (y := x * 2, y[:, :3].relu_(), y)[2],
    "viewed before": lambda x: (y := x * 2, z := y.flatten(1), y.relu_(), z)[3],
    "narrower type": lambda x: (x * 2).bfloat16().add_(x),
    "spread": lambda x: (x * 2).add_(x[:, :1]),
    "another order": lambda x: (x * 2).add_(x.transpose(2, 3)),
    "gaps": lambda x: (x * 2).transpose(1, 2).relu_(),
}


def module_of(call: Call | nn.Module) -> nn.Module:
    return (call if isinstance(call, nn.Module) else Function(call)).eval()


def traced(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
    """What is compared of an export, or its error."""
    try:
        traced_module = export.trace(module, tuple(x.clone() for x in inputs), {})
    except TaskError as error:
        return error.kind, error.message
    return (
        traced_module.graph,
        traced_module.input_specs,
        traced_module.out_specs,
        traced_module.ranges,
        traced_module.written,
    )


#: Composite operators that return their operand, or share its memory, though their schema does not say so.
UNTOLD: dict[str, Call] = {
    "dropout": lambda x: (y := x * 2, F.dropout(y, training=False).relu_(), y)[2],
    "einsum": lambda x: (y := x * 2, torch.einsum("abcd->abcd", y).relu_(), y)[2],
    "chunks": lambda x: (y := x * 2, m := torch.unsafe_chunk(y, 2, 1), y.relu_(), m[0])[3],
}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", [*ALONE, *SHARED])
def test_graphs_are_those_of_torch(name: str, layout: torch.memory_format, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = module_of(ALONE.get(name) or SHARED[name]), IMAGES.contiguous(memory_format=layout)
    mine = traced(module, (x,))
    assert mine[0] == "mutates_inputs" if name == "input" else isinstance(mine[0], dict)
    monkeypatch.setattr(export, "fast_fakes", nullcontext)
    monkeypatch.setattr(export, "out_of_place", lambda program: None)
    assert mine == traced(module, (x,))


def _in_place(call: Call | nn.Module) -> list[str]:
    """Operators in place that are left."""
    program = export.export_program(module_of(call), (IMAGES,), {}, export.default_free((IMAGES,), {}))
    out_of_place(program)
    targets = [node.target for node in program.graph.nodes if isinstance(node.target, OpOverload)]
    names = [target._schema.name.removeprefix("aten::") for target in targets]
    return [name for name in names if name.endswith("_")]


@pytest.mark.parametrize("name", ALONE)
def test_what_nothing_else_sees_is_replaced(name: str) -> None:
    # The gate's factors are spread over the image; what is written in place behind that is no new tensor.
    assert _in_place(ALONE[name]) == (["mul_", "sub_", "hardswish_"] if name == "residual" else [])


@pytest.mark.parametrize("name", [*SHARED, *UNTOLD])
def test_what_others_see_is_left_to_torch(name: str) -> None:
    assert _in_place(SHARED.get(name) or UNTOLD[name])


@pytest.mark.parametrize("name", ALONE)
def test_values_are_those_of_eager_mode(name: str) -> None:
    module = module_of(ALONE[name])
    program = export.export_program(module, (IMAGES,), {}, export.default_free((IMAGES,), {}))
    out_of_place(program)
    with torch.no_grad():
        torch.testing.assert_close(program.module()(IMAGES.clone()), module(IMAGES.clone()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", [*WITH_IN_PLACE, "gelu", "batch norm"])
def test_fake_results_are_like_real_ones(name: str, dtype: torch.dtype) -> None:
    call = nn.BatchNorm2d(6) if name == "batch norm" else Function(getattr(torch.ops.aten, name))
    module = call.eval().to(dtype)
    for x in (IMAGES, IMAGES.contiguous(memory_format=torch.channels_last), IMAGES.transpose(1, 2)[..., :6]):
        x = x.transpose(1, 2) if name == "batch norm" and x.shape[1] != 6 else x
        x = x.to(dtype)
        want = module(x)
        program = export.export_program(module, (x,), {}, export.default_free((x,), {}))
        got = next(node for node in reversed(program.graph.nodes) if node.op == "call_function").meta["val"]
        assert (got.dtype, got.shape[1:], got.stride()) == (want.dtype, want.shape[1:], want.stride())
