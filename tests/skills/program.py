"""The description of a test of a CUDA header: a plan and its kernel, inputs, and the expected result in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from kernel_assistant.records import BufferSpec, Launch, Plan

Dims = dict[str, int]
CTYPE = {"f32": "float", "bf16": "__nv_bfloat16", "f16": "__half"}
#: Largest error as a part of the largest value: a few roundings of float32, one of a half type.
BOUND = {"f32": 3e-6, "bf16": 4e-3, "f16": 6e-4}


@dataclass(frozen=True)
class Program:
    """`exact` takes the inputs in float64, in the plan's order; `flops` counts operations at some sizes; `own_bound`
    is for errors that are larger than those of the inputs' type.
    """

    header: str
    source: str
    plan: Plan
    exact: Callable[..., torch.Tensor]
    sizes: tuple[Dims, ...]
    large: Dims
    own_bound: float = 0.0
    shift: float = 0.0
    flops: Callable[[Dims], float] = field(default=lambda dims: 0.0)
    rate: str = ""

    @property
    def name(self) -> str:
        return self.plan.launches[-1].symbol

    @property
    def bound(self) -> float:
        return self.own_bound or BOUND[self.plan.inputs[0].dtype]


def plan(
    inputs: dict[str, str],
    output: str,
    launches: list[Launch],
    dtype: str = "f32",
    scratch: dict[str, str] | None = None,
    dims: str = "",
) -> Plan:
    """A plan. Shapes are given as text: "B C" has two dimensions, and those of x0 are the plan's unless `dims` says
    otherwise. Parameters p… have the type of the inputs.
    """

    def spec(name: str, shape: str, kind: str = dtype) -> BufferSpec:
        return BufferSpec(name=name, dtype=kind, shape=tuple(shape.split()))

    return Plan(
        target="cuda",
        dims=tuple((dims or inputs["x0"]).split()),
        inputs=tuple(spec(name, shape) for name, shape in inputs.items()),
        outputs=(spec("out0", output),),
        scratch=tuple(spec(name, shape, "f64") for name, shape in (scratch or {}).items()),
        launches=tuple(launches),
    )


def launch(symbol: str, args: str, grid: str, block: int = 256, shared: str = "0", rows: str = "1") -> Launch:
    """`args` are pairs FIELD=VALUE, or the name of a buffer."""
    pairs = [tuple(word.split("=")) if "=" in word else (word, word) for word in args.split()]
    return Launch(
        symbol=symbol,
        args=tuple((pair[0], pair[1]) for pair in pairs),
        grid=(grid, rows, "1"),
        block=(str(block), "1", "1"),
        shared=shared,
    )


def plan_of(
    symbol: str,
    inputs: dict[str, str],
    output: str,
    args: str,
    grid: str,
    dtype: str = "f32",
    dims: str = "",
    **how: Any,
) -> Plan:
    """A plan with one launch, which is given all buffers and `args`; `how` is for `launch`."""
    one = launch(symbol, " ".join([*inputs, "out0", args]), grid, **how)
    return plan(inputs, output, [one], dtype, dims=dims)


def single(
    header: str, symbol: str, body: str, *shapes_and_launch: Any, block: int = 256, **how: Any
) -> tuple[str, str, Plan]:
    """The header, source and plan of a program of one kernel; further arguments are those of `plan_of`."""
    return header, kernel(symbol, body, block), plan_of(symbol, *shapes_and_launch, block=block, **how)


def kernel(symbol: str, body: str, block: int = 256) -> str:
    head = f'extern "C" __global__ void __launch_bounds__({block}) {symbol}(const __grid_constant__ {symbol}_args a)'
    return f"{head} {{\n{body}\n}}\n"
