"""Linear layers of few rows as kernels: in the emulator, on a GPU, and in the parts of a graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kernel_assistant.generator.ir.schedule import in_parts, make
from kernel_assistant.generator.loops.linears import as_linears
from kernel_assistant.generator.plan.partition import cut
from kernel_assistant.generator.search.search import initial
from tests.generator.by_parts import ByParts
from tests.generator.checks import check_around, check_compiles, check_names, check_read_back
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import H200, Computed, Tensors, bindings, built_first, export

#: Of the largest value, where several results in a half type are rounded one after another.
SEVERAL = 4e-2


class Layers(nn.Module):
    """Linear layers of the same rows."""

    def __init__(self, width: int, *outputs: int, bias: bool = False, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(width, count, bias=bias, dtype=dtype) for count in outputs)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(layer(x) for layer in self.layers)


class SomeBias(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other = (nn.Linear(64, 24, bias=bias, dtype=torch.float16) for bias in (True, False))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.one(x), self.other(x)


class Latents(nn.Module):
    """Layers of parameters alone, which are computed once."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.latents = nn.Parameter(torch.randn(8, 64, dtype=torch.bfloat16))
        self.k, self.v = (nn.Linear(64, 16, dtype=torch.bfloat16) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ self.k(self.latents).T, -1) @ self.v(self.latents)


class Block(nn.Module):
    """The feed-forward half of a layer of a language model."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.RMSNorm(40, dtype=torch.bfloat16)
        self.gate, self.up = (nn.Linear(40, 72, bias=False, dtype=torch.bfloat16) for _ in range(2))
        self.down = nn.Linear(72, 40, bias=False, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(found)) * self.up(found))


def _rows(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


#: Name → module, inputs, parameters of the schedule.
CASES: dict[str, tuple[nn.Module, Tensors, dict[str, int]]] = {
    "one row": (Layers(64, 48), (_rows(1, 64),), {"warps": 2, "unroll": 2}),
    "three layers": (Layers(96, 32, 16, 40), (_rows(2, 1, 96),), {"warps": 2, "unroll": 4}),
    "biases": (Layers(64, 20, 7, bias=True), (_rows(5, 64),), {"warps": 1, "unroll": 2}),
    "one of two has a bias": (SomeBias(), (_rows(3, 64, dtype=torch.float16),), {"warps": 1, "unroll": 2}),
    "width that is no whole step": (Layers(200, 33), (_rows(8, 200),), {"warps": 4, "unroll": 2}),
    "width of one load": (Layers(8, 16), (_rows(4, 8),), {"warps": 1, "unroll": 2}),
    "whole loads": (Layers(256, 24, 16), (_rows(2, 256),), {"warps": 2, "unroll": 2}),
    "whole loads ahead": (Layers(512, 24), (_rows(2, 512),), {"warps": 1, "unroll": 2, "stages": 4}),
    "loads ahead": (Layers(200, 40), (_rows(3, 200),), {"warps": 1, "unroll": 2, "stages": 2}),
    "loads ahead of some warps": (Layers(224, 16), (_rows(1, 224),), {"warps": 2, "unroll": 2, "stages": 2}),
    "half": (Layers(64, 16, dtype=torch.float16), (_rows(8, 64, dtype=torch.float16),), {"warps": 2, "unroll": 8}),
}
WIDE: dict[str, tuple[nn.Module, Tensors]] = {
    "language model": (Layers(2048, 2048, 1024, 1024), (_rows(1, 1, 2048),)),
    "eight rows": (Layers(6144, 2048), (_rows(8, 1, 6144),)),
}


def _check(model: nn.Module, args: Tensors, found: list[torch.Tensor], bound: float = 1e-2) -> None:
    device = found[0].device
    exact = model.double().to(device)(*(one.double().to(device) for one in args))
    model.to(args[0].dtype).cpu()
    for given, wanted in zip(found, exact if isinstance(exact, tuple) else (exact,), strict=True):
        torch.testing.assert_close(given.double(), wanted, atol=bound * wanted.abs().max().item(), rtol=0)


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path) -> None:
    model, args, parameters = CASES[name]
    graph = export(model, *args)
    schedule = in_parts("cuda", (make("cuda", "linears", **parameters),))
    _check(model, args, OnHost(graph, schedule, tmp_path)(bindings(graph, model, args)))


def test_more_rows_than_at_the_base_size(tmp_path: Path) -> None:
    model, args = Layers(64, 24, 40), (_rows(3, 64),)
    graph = export(model, *args)
    assert graph.dims == {"B": 3}
    run = OnHost(graph, in_parts("cuda", (make("cuda", "linears", warps=1, unroll=2),)), tmp_path)
    more = (_rows(19, 64),)
    _check(model, more, run(bindings(graph, model, more)))


linear = nn.functional.linear
#: Operands that are computed, repeated or lie with gaps: x [3, 64], weights [24, 64], a bias, another one.
OPERANDS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "weight made of a layer": (lambda x, w, v, b: linear(x, v * linear(x, w).sum().tanh()) + linear(x, w), (24,)),
    "weights made between": (lambda x, w, v, b: (linear(x, w), linear(x, v.cos() + 0)), (24,)),
    "bias made of a layer": (lambda x, w, v, b: linear(x, v, linear(x, w).sum(0).tanh()), (24,)),
    "repeated bias": (lambda x, w, v, b: linear(x, w, b.expand(24)), (1,)),
    "bias with gaps": (lambda x, w, v, b: linear(x, w, b[:, 0]), (24, 2)),
    "part of a bias": (lambda x, w, v, b: (linear(x, w, b[:24]), linear(x, v, b[24:])), (48,)),
    "constant bias": (lambda x, w, v, b: linear(x, w, torch.ones_like(b)) + b, (24,)),
    "weight turned": (lambda x, w, v, b: linear(linear(x, w), v.T, None) + b, (64,)),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands_as_people_have_them(name: str, tmp_path: Path) -> None:
    function, bias = OPERANDS[name]
    model, args = Computed(function, _rows(24, 64), _rows(24, 64) + 1, _rows(*bias)), (_rows(3, 64),)
    graph = export(model, *args)
    _check(model, args, ByParts(graph, tmp_path)(bindings(graph, model, args)), SEVERAL)


def test_a_layer_without_outputs() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Layers(64, 0, 16)
    assert initial(export(model, _rows(3, 64)), "cuda", H200)


@pytest.mark.parametrize(
    ("model", "x", "library"),
    [(Block(), _rows(2, 1, 40), False), (Latents(), _rows(3, 16), True)],
    ids=["feed-forward", "layers of parameters alone"],
)
def test_parts_around_them(model: nn.Module, x: torch.Tensor, library: bool, tmp_path: Path) -> None:
    graph = export(model, x)
    parts = ByParts(graph, tmp_path)
    assert ("library" in parts.kinds) == library
    _check(model, (x,), parts(bindings(graph, model, (x,))), SEVERAL)


@pytest.mark.parametrize("name", CASES)
def test_text_is_read_back(name: str) -> None:
    model, args, _ = CASES[name]
    graph = export(model, *args)
    check_read_back(graph, initial(graph, "cuda", H200)[:3])


def test_schedules_around_another() -> None:
    model, args = WIDE["language model"]
    part = next(part.graph for part in cut(export(model, *args), "cuda").parts if as_linears(part.graph))
    check_around(part)


def test_sizes_have_names() -> None:
    model, args, _ = CASES["three layers"]
    assert "K = D" in check_names(model, args)


@pytest.mark.parametrize(
    ("model", "args"),
    [
        (Layers(64, 16), (_rows(9, 64),)),
        (Layers(64, 16, dtype=torch.float32), (_rows(2, 64, dtype=torch.float32),)),
        (Layers(20, 16), (_rows(2, 20),)),
        (Layers(16384, 16), (_rows(2, 16384),)),
    ],
    ids=["many rows", "f32", "rows that no load divides", "few long rows of weights"],
)
def test_what_a_library_computes(model: nn.Module, args: Tensors) -> None:
    assert "linears" not in initial(export(model, *args), "cuda", H200)[0].forms()


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDE)
def test_they_compile(name: str, tmp_path: Path) -> None:
    model, args = WIDE[name]
    graph = export(model, *args)
    check_compiles(graph, initial(graph, "cuda", H200)[0], tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*CASES, *WIDE])
def test_values_on_a_gpu(name: str, tmp_path: Path) -> None:
    model, args, *_ = (CASES | WIDE)[name]
    graph = export(model, *args)
    for built in built_first(graph, H200, tmp_path, 8):
        _check(model, args, built(bindings(graph, model, args)))
