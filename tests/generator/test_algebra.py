"""Rules of algebra: where they apply, that they compute the same of drawn inputs in float64, and that what the
generator writes by them is no less exact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from kernel_assistant.generator.algebra.simplify import simplified
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.operators import operator
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import OpGraph
from kernel_assistant.targets.detect import detect
from tests.generator.checks import check, check_read_back
from tests.generator.harness import H200, Built, export
from tests.generator.test_folding import values_of

Compute = Callable[..., Any]
CPU = detect("cpu")


class Weighted(nn.Module):
    """`compute(module, *inputs)` with parameters of several kinds."""

    def __init__(self, compute: Compute) -> None:
        super().__init__()
        self.compute = compute
        self.linear, self.unbiased = nn.Linear(24, 40), nn.Linear(24, 40, bias=False)
        self.weight, self.vector = nn.Parameter(torch.randn(24, 40)), nn.Parameter(torch.randn(40))
        self.diagonal = nn.Parameter(torch.randn(24))
        self.pointwise = nn.Conv2d(6, 10, 1)
        self.grouped = nn.Conv2d(6, 10, 1, groups=2, bias=False)
        self.line, self.cube = nn.Conv1d(6, 10, 1), nn.Conv3d(6, 10, 1)
        self.wide, self.strided = nn.Conv2d(6, 10, 3, padding=1), nn.Conv2d(6, 10, 1, stride=2)
        self.padded = nn.Conv2d(6, 10, 1, padding=1)

    def forward(self, *args: torch.Tensor) -> Any:
        return self.compute(self, *args)


ROWS, SEQUENCES, TOKENS, IMAGES = (5, 24), (3, 7, 24), (3, 70, 24), (2, 6, 8, 8)
#: Computations with the shape of their input, the operators that are gone, and those of most work that are left.
APPLIED: dict[str, tuple[Compute, tuple[int, ...], str]] = {
    "sum of linear": (lambda m, x: m.linear(x).sum(1), ROWS, "linear"),
    "mean of linear, kept": (lambda m, x: m.unbiased(x).mean(-1, keepdim=True), SEQUENCES, "linear"),
    "sum of a product": (lambda m, x: (x @ m.weight).sum(-1), ROWS, "matmul"),
    "mean of mm": (lambda m, x: torch.mm(x, m.weight).mean(1), ROWS, "mm"),
    "sum of addmm": (lambda m, x: torch.addmm(m.vector, x, m.weight).sum(1), ROWS, "addmm"),
    "scaled and shifted": (
        lambda m, x: ((m.linear(x) / 3 + m.vector - 2) * 1.5 - m.vector).sum(1, keepdim=True).exp(),
        ROWS,
        "linear",
    ),
    "mean, shifted": (lambda m, x: (m.linear(x) + 7).mean(1), ROWS, "linear"),
    "weights turned": (lambda m, x: (x @ m.linear.weight.t()).sum(1), ROWS, "matmul"),
    "halves": (lambda m, x: functional.linear(x.bfloat16(), m.linear.weight.bfloat16()).sum(1), ROWS, "linear"),
    "diagonal first": (lambda m, x: torch.diag(m.diagonal) @ x.t(), ROWS, "matmul"),
    "diagonal behind": (lambda m, x: torch.mm(x, torch.diag_embed(m.diagonal)), ROWS, "mm"),
    "diagonal of an input": (lambda m, x: torch.diag(x[0]) @ m.weight, ROWS, "matmul"),
}
#: Averages of many rows or places of a product, which are products of averages; the operator that is gone.
AVERAGED: dict[str, tuple[Compute, tuple[int, ...], str]] = {
    "adaptive": (lambda m, x: functional.adaptive_avg_pool2d(m.pointwise(x), 1), (2, 6, 16, 16), "conv2d"),
    "mean": (lambda m, x: m.pointwise(x).mean([2, 3]), (2, 6, 16, 16), "conv2d"),
    "mean, kept": (lambda m, x: m.pointwise(x).mean((-1, -2), keepdim=True).relu(), (2, 6, 16, 17), "conv2d"),
    "mean, 1d": (lambda m, x: m.line(x).mean(-1), (2, 6, 256), "conv1d"),
    "adaptive, 3d": (lambda m, x: functional.adaptive_avg_pool3d(m.cube(x), 1), (2, 6, 8, 8, 6), "conv3d"),
    "tokens": (lambda m, x: m.linear(x).mean(1), TOKENS, "linear"),
    "tokens, kept": (lambda m, x: m.unbiased(x).mean(-2, keepdim=True), TOKENS, "linear"),
    "tokens of a product": (lambda m, x: (x @ m.weight).mean(1), TOKENS, "matmul"),
    "rows": (lambda m, x: m.linear(x).mean((0, 1)), TOKENS, "linear"),
    "halves of tokens": (lambda m, x: (x.bfloat16() @ m.weight.bfloat16()).mean(1), (2, 256, 24), "matmul"),
}
PRODUCTS = APPLIED | AVERAGED
#: Poolings that move before a convolution, where there are others: the places that it computes then.
POOLED: dict[str, tuple[Compute, tuple[int, ...], tuple[str, ...]]] = {
    "average pooling": (lambda m, x: functional.avg_pool2d(m.pointwise(x), 2), IMAGES, ("4", "4")),
    "overlapping": (lambda m, x: functional.avg_pool2d(m.grouped(x), 3, 2), IMAGES, ("3", "3")),
    "adaptive, uneven": (lambda m, x: functional.adaptive_avg_pool2d(m.pointwise(x), (3, 5)), IMAGES, ("3", "5")),
    "1d": (lambda m, x: functional.avg_pool1d(m.line(x), 4), (2, 6, 8), ("2",)),
    "3d": (lambda m, x: functional.avg_pool3d(m.cube(x), 2), (2, 6, 4, 4, 6), ("2", "2", "3")),
}
KEPT: dict[str, tuple[Compute, tuple[int, ...]]] = {
    "another dimension": (lambda m, x: m.linear(x).sum(0), ROWS),
    "few rows of halves": (lambda m, x: (x.bfloat16() @ m.weight.bfloat16()).mean(0), (50, 24)),
    "few rows": (lambda m, x: m.linear(x).mean(0), ROWS),
    "rows and features": (lambda m, x: m.linear(x).mean(), (40, 24)),
    "read twice": (lambda m, x: ((y := m.linear(x)).sum(1), y.relu()), ROWS),
    "returned": (lambda m, x: ((y := m.linear(x)).sum(1), y), ROWS),
    "with itself": (lambda m, x: ((y := m.linear(x)) * y).sum(1), ROWS),
    "not linear between": (lambda m, x: m.linear(x).relu().sum(1), ROWS),
    "a number over it": (lambda m, x: (2 / m.linear(x)).sum(1), ROWS),
    "no weights": (lambda m, x: (x @ x.t()).sum(1), ROWS),
    "halves": (lambda m, x: functional.avg_pool2d(functional.conv2d(x.half(), m.pointwise.weight.half()), 2), IMAGES),
    "one feature, broadcast": (lambda m, x: (x @ m.weight[:, :1] + m.vector).sum(1), ROWS),
    "a matrix added": (lambda m, x: (m.linear(x) + x[:, :1]).sum(1), ROWS),
    "channels pooled": (lambda m, x: functional.avg_pool2d(m.line(x), 2), (3, 6, 60)),
    "channels averaged": (lambda m, x: functional.adaptive_avg_pool2d(m.line(x), 1), (3, 6, 300)),
    "few places": (lambda m, x: m.pointwise(x).mean((2, 3)), IMAGES),
    "wide filters": (lambda m, x: functional.avg_pool2d(m.wide(x), 2), IMAGES),
    "a stride": (lambda m, x: functional.avg_pool2d(m.strided(x), 2), IMAGES),
    "padded convolution": (lambda m, x: functional.avg_pool2d(m.padded(x), 2), IMAGES),
    "padded pooling": (lambda m, x: functional.avg_pool2d(m.pointwise(x), 2, padding=1), IMAGES),
    "ceiling": (lambda m, x: functional.avg_pool2d(m.pointwise(x), 3, ceil_mode=True), IMAGES),
    "another divisor": (lambda m, x: functional.avg_pool2d(m.pointwise(x), 2, divisor_override=3), IMAGES),
    "maxima": (lambda m, x: functional.max_pool2d(m.pointwise(x), 2), IMAGES),
    "mean of one dimension": (lambda m, x: m.pointwise(x).mean(2), IMAGES),
    "mean of all": (lambda m, x: m.pointwise(x).mean(), IMAGES),
    "another diagonal": (lambda m, x: torch.diag(m.diagonal, 1)[:24, :24] @ x.t(), ROWS),
}


def _exported(compute: Compute, shape: tuple[int, ...]) -> tuple[nn.Module, torch.Tensor, OpGraph]:
    torch.manual_seed(5)
    model = Weighted(compute)
    x = torch.randn(shape)
    return model, x, export(model, x)


def _same(model: nn.Module, x: torch.Tensor, graph: OpGraph, other: OpGraph) -> None:
    for want, got in zip(values_of(graph, model, (x,)), values_of(other, model, (x,)), strict=True):
        close = 1e-12 if got.dtype == torch.float64 else 1e-2
        torch.testing.assert_close(got, want, rtol=close, atol=close)


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_goes(name: str) -> None:
    compute, shape, gone = PRODUCTS[name]
    model, x, graph = _exported(compute, shape)
    found = simplified(graph, "cuda")
    assert gone in map(operator, graph.nodes) and gone not in map(operator, found.nodes)
    assert found.outputs == graph.outputs
    assert all(found.spec(output) == graph.spec(output) for output in graph.outputs)
    _same(model, x, graph, found)


def _among_others(compute: Compute) -> Compute:
    """The computation beside four other convolutions."""

    def computed(module: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        images = x.flatten(2)
        others = [functional.conv1d(images, module.line.weight, dilation=1 + one) for one in range(4)]
        return compute(module, x), *others

    return computed


@pytest.mark.parametrize("name", POOLED)
def test_a_pooling_moves_before_the_convolution(name: str) -> None:
    compute, shape, places = POOLED[name]
    model, x, graph = _exported(_among_others(compute), shape)
    found = simplified(graph, "cuda")
    assert places in [node.spec.shape[2:] for node in found.nodes if operator(node).startswith("conv")]
    assert all(found.spec(output) == graph.spec(output) for output in graph.outputs)
    _same(model, x, graph, found)


@pytest.mark.parametrize("name", POOLED)
def test_a_pooling_stays_where_its_error_would_count(name: str) -> None:
    """TF32's error of a single convolution would not be averaged any more."""
    graph = _exported(*POOLED[name][:2])[2]
    assert simplified(graph, "cuda") is graph


@pytest.mark.parametrize("name", KEPT)
def test_nothing_else_changes(name: str) -> None:
    compute, shape = KEPT[name]
    graph = _exported(compute if len(shape) == 2 else _among_others(compute), shape)[2]
    assert simplified(graph, "cuda") is graph


def test_convolutions_of_a_cpu_stay_as_pytorch_calls_them() -> None:
    graph = _exported(_among_others(POOLED["average pooling"][0]), IMAGES)[2]
    assert simplified(graph, "cpu") is graph


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_is_written_is_as_exact_as_pytorch(name: str, tmp_path: Path) -> None:
    model, x, graph = _exported(*PRODUCTS[name][:2])
    schedule = initial(graph, "cpu", CPU)[0]
    check_read_back(graph, [schedule])
    built = Built(graph, schedule, tmp_path)
    check(model, (x,), built)


@pytest.mark.gpu
@pytest.mark.parametrize("name", PRODUCTS | POOLED)
def test_what_is_written_for_a_gpu_is_as_exact_as_pytorch(name: str, tmp_path: Path) -> None:
    compute, shape = (PRODUCTS | POOLED)[name][:2]
    model, x, graph = _exported(_among_others(compute) if name in POOLED else compute, shape)
    with torch.backends.cudnn.flags(allow_tf32=False):
        check(model, (x,), Built(graph, initial(graph, "cuda", H200)[0], tmp_path))


CONSTANT_CALLS: dict[str, Compute] = {
    "sorted": lambda m, x: x * m.diagonal.sort()[0].sum(),
    "inverted": lambda m, x: x + torch.linalg.inv(m.weight[:, :24]).sum(),
    "a product of weights": lambda m, x: (x @ (m.weight @ m.linear.weight)).sum(1),
    "a product's sum": lambda m, x: x * (m.weight @ m.linear.weight).sum(0),
}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", CONSTANT_CALLS)
def test_what_pytorch_computes_of_parameters_is_no_part_of_prepare(name: str, target: str) -> None:
    graph = _exported(CONSTANT_CALLS[name], ROWS)[2]
    device = CPU if target == "cpu" else H200
    plan = emit(graph, initial(graph, target, device)[0]).plan
    assert all(launch.call is None for launch in plan.prepare)


def test_summed_weights_are_computed_once() -> None:
    graph = _exported(*APPLIED["sum of linear"][:2])[2]
    plan = emit(graph, initial(graph, "cpu", CPU)[0]).plan
    assert len(plan.prepare) == 1 and [spec.shape for spec in plan.packed] == [("24",), ()]
    read = {value for launch in plan.launches for _, value in launch.args}
    assert not any(value.name in read for value in graph.inputs if value.kind == "param")
