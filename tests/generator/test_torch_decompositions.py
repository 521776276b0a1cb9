"""Operators that torch decomposes into parts at export: kernels and calls of PyTorch compute the parts right. Composite
operators that we write as several nodes, and reductions in two steps: the names of the new nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernel_assistant.generator.lower.expand import EXPANSIONS, expand, in_steps
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import GraphInput
from kernel_assistant.targets import cpu
from kernel_assistant.worker.graph.composites import DECOMPOSED
from tests.generator.by_parts import ByParts
from tests.generator.harness import Function, Tensors, as_list, bindings, export, spread


def _holes(*shape: int) -> torch.Tensor:
    """Numbers between which NaN and zeros stand."""
    value = spread(*shape)
    return torch.where(value > 1, float("nan"), torch.where(value < -1, 0.0, value))


def _ties(*shape: int) -> torch.Tensor:
    """Few different numbers."""
    return (spread(*shape) * 2).round()


X, Y = spread(6, 9), spread(9, 6).T
CASES: dict[str, tuple[nn.Module | Callable[..., Any], Tensors]] = {
    "addr": (lambda m, a, b: torch.addr(m, a, b, beta=0.5, alpha=2.0), (X, spread(6), spread(9))),
    "aminmax": (lambda x: torch.aminmax(x, dim=1), (X,)),
    "block_diag": (lambda a, b: torch.block_diag(a, b) * 2, (spread(3, 4), spread(2, 5))),
    "column_stack": (lambda a, b: torch.column_stack((a, b)), (spread(6), X)),
    "count_nonzero": (lambda x: torch.count_nonzero(x.relu(), dim=1), (X,)),
    "cross": (lambda a, b: torch.cross(a, b, dim=-1), (spread(6, 3), spread(2, 6, 3)[0])),
    "cumulative_trapezoid": (lambda x: torch.cumulative_trapezoid(x, dim=1), (X,)),
    "diagflat": (lambda x: torch.diagflat(x) + 1, (spread(7),)),
    "diff": (lambda x: torch.diff(x, dim=1), (X,)),
    "dist": (lambda a, b: torch.dist(a, b, p=2), (X, Y)),
    "float_power": (lambda x: torch.float_power(x, 2), (X,)),
    "gru_cell": (nn.GRUCell(9, 5), (X, spread(6, 5))),
    "inner": (lambda a, b: torch.inner(a, b).relu(), (X, spread(4, 9))),
    "isclose": (lambda a, b: torch.isclose(a.round(), b.round()), (X, Y)),
    "kron": (torch.kron, (spread(3, 4), spread(2, 5))),
    "linalg_cross": (torch.linalg.cross, (spread(6, 3), spread(1, 3))),
    "linalg_matrix_norm": (lambda x: torch.linalg.matrix_norm(x, 1), (spread(3, 4, 5),)),
    "lstm_cell": (nn.LSTMCell(9, 5), (X,)),
    "nanmean": (lambda x: torch.nanmean(x, dim=1), (_holes(6, 9),)),
    "nansum": (lambda x: torch.nansum(x, dim=0), (_holes(6, 9),)),
    "renorm": (lambda x: torch.renorm(x, 2, 0, 1.5), (X,)),
    "rnn_relu_cell": (nn.RNNCell(9, 5, nonlinearity="relu"), (X, spread(6, 5))),
    "rnn_tanh_cell": (nn.RNNCell(9, 5), (X,)),
    "rot90": (lambda x: torch.rot90(x, 1, (0, 1)) + 1, (X,)),
    "special_xlog1py": (lambda a, b: torch.special.xlog1py(a, b.abs()), (X, Y)),
    "tensordot": (lambda a, b: torch.tensordot(a, b, dims=1).relu(), (X, spread(9, 4))),
    "trace": (torch.trace, (spread(7, 7),)),
    "trapezoid": (lambda x: torch.trapezoid(x, dim=1), (X,)),
}
#: Operators that have a form here since their parts were tried.
OWN: dict[str, tuple[nn.Module | Callable[..., Any], Tensors]] = {
    "bilinear": (nn.Bilinear(9, 4, 5), (X, spread(6, 4))),
    "bilinear of rows": (nn.Bilinear(9, 4, 5, bias=False), (spread(2, 6, 9), spread(2, 6, 4))),
    "rrelu": (F.rrelu, (X,)),
    "cummax": (lambda x: torch.cummax(x * 2, 1).values, (_holes(6, 90),)),
    "cummin": (lambda x: torch.cummin((x * 9).to(torch.int64), 0).values + 1, (X,)),
    "cummax with positions": (lambda x: torch.cummax(x, 1), (_holes(6, 90),)),
    "positions of cummin": (lambda x: torch.cummin(x.bfloat16(), 0).indices * 2, (_holes(90, 6),)),
    "take": (torch.take, (X.T, torch.tensor([[0, 53, 7], [11, -1, -54]]))),
    "narrow_copy": (lambda x: torch.narrow_copy(x, 1, 2, 4) * 2, (X,)),
    "digamma": (torch.digamma, (torch.cat([X.reshape(-1) * 20, torch.tensor([0.0, -0.0, -1.0, 1.4616, 10.0, 1e18])]),)),
    "erfinv": (torch.erfinv, (torch.cat([torch.linspace(-1.1, 1.1, 801), torch.tensor([1.0, -1.0, 0.0])]),)),
    "i0": (torch.i0, (torch.cat([X.reshape(-1) * 30, torch.tensor([0.0, 88.0, float("inf"), float("nan")])]),)),
    "i0 of doubles": (lambda x: torch.i0(x.double()), (torch.cat([X.reshape(-1) * 30, torch.tensor([29.9, 30.1])]),)),
    "frexp": (torch.frexp, (torch.cat([X.reshape(-1) * 1e5, torch.tensor([0.0, 1.0, 1e-40, float("inf")])]),)),
    "nextafter": (torch.nextafter, (X, X.roll(1))),
    "sort": (lambda x: torch.sort(x * 2, dim=1, stable=True), (_holes(6, 90),)),
    "sort of columns": (lambda x: torch.sort(x, dim=1, stable=True, descending=True), (_ties(2, 20, 6),)),
    "sort of whole numbers": (lambda x: x.sort(dim=1, stable=True, descending=True), (_ties(4, 50, 3).int(),)),
    "argsort": (lambda x: torch.argsort(x.bfloat16(), dim=1, stable=True), (_ties(6, 40),)),
    "msort": (lambda x: torch.msort(x.T).relu(), (X,)),
    "topk": (lambda x: torch.topk(x, 4, 1)[0], (_holes(6, 30),)),
    "topk of the smallest": (lambda x: torch.topk(x, 2, 1, largest=False), (spread(6, 9, 5),)),
    "topk without an order": (lambda x: torch.topk(x, 4, 1, sorted=False)[0] * 2, (spread(6, 9),)),
    "sort of a computed value": (lambda x: (x * 3, torch.sort(x * 3 + 0.1, 1)[0]), (spread(64, 16),)),
    "sort of what is read twice": (lambda x, y: (x * 0.3).relu() + torch.sort(x * 0.3 + y, 1)[0], (X, Y)),
    "mode of a computed value": (lambda x: torch.mode(x * 0.3 + 0.1, 1)[0], (_ties(9, 30),)),
    "kthvalue": (lambda x: torch.kthvalue(x, 3, keepdim=True), (X,)),
    "median": (lambda x: torch.median(x, 1), (_holes(6, 9),)),
    "median of all": (lambda x, y: torch.median(x) + y, (spread(30), X)),
    "median of integers": (lambda x: torch.median(x, 1, keepdim=True)[0], (_ties(8, 6, 3).int(),)),
    "nanmedian": (lambda x: torch.nanmedian(x, 1)[0], (torch.cat([_holes(6, 9), torch.full((1, 9), float("nan"))]),)),
    "mode": (lambda x: torch.mode(x, 1)[0], (_ties(9, 30),)),
    "quantile": (lambda x: torch.quantile(x, 0.3, dim=1, keepdim=True), (_holes(6, 9),)),
    "quantile at an element": (lambda x: torch.quantile(x / 0.0, 0.5, dim=1), (_ties(6, 9),)),
    "quantile in the middle": (lambda x: torch.quantile(x, 0.6, dim=1, interpolation="midpoint"), (spread(6, 9, 5),)),
    "to_dense": (lambda x: x.to_dense() + 1, (X,)),
    "lgamma": (torch.lgamma, (torch.cat([X.reshape(-1) * 20, torch.tensor([0.0, -1.0, 1.0, 2.0, 1e10])]),)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*CASES, *OWN])
def test_by_parts(name: str, tmp_path: Path) -> None:
    function, args = (CASES | OWN)[name]
    model = function if isinstance(function, nn.Module) else Function(function)
    graph = export(model, *args)
    assert not {node.op.partition(".")[0] for node in graph.nodes} & DECOMPOSED
    with torch.no_grad():
        want = model(*args)
    for mine, theirs in zip(ByParts(graph, tmp_path)(bindings(graph, model, args)), as_list(want), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_every_operator_is_tried() -> None:
    assert set(CASES) == DECOMPOSED and not DECOMPOSED & set(EXPANSIONS)


WIDE, ROW = TensorSpec(dtype="f32", shape=("4", "5")), TensorSpec(dtype="f32", shape=("4",))


@pytest.mark.parametrize("dim", [1, -1])
def test_an_expansion_may_be_reduced_in_steps(dim: int) -> None:
    """Both create nodes in place of the loss; the last of them gets its name."""
    graph = export(Function(F.triplet_margin_loss), *[torch.randn(4, 5, 6)] * 3)
    plain = expand(graph)
    stepped = in_steps(plain, dim)
    assert len(stepped.nodes) > len(plain.nodes)
    assert stepped.outputs == plain.outputs
    assert initial(graph, "cpu", cpu.facts())


def test_a_node_that_is_called_like_a_made_one_keeps_its_name() -> None:
    def loss(name: str) -> OpGraph:
        nodes = (
            Node(name=name, op="neg", args=("%x0",), spec=WIDE),
            Node(name="n1", op="pairwise_distance", args=(f"%{name}", "%x0"), spec=ROW),
            Node(name="n2", op="cross_entropy_loss", args=("%x0", "%x1"), spec=TensorSpec(dtype="f32", shape=())),
        )
        inputs = (GraphInput(name="x0", spec=WIDE), GraphInput(name="x1", spec=TensorSpec(dtype="i64", shape=("4",))))
        return OpGraph(dims={}, inputs=inputs, nodes=nodes, outputs=("n1", "n2"))

    usual, other = expand(loss("n0")), expand(loss("n2_1"))
    assert [one.name for one in usual.nodes][2:] == ["n2_0", "n2_1", "n2_2", "n2_3", "n2"]
    assert [one.name for one in other.nodes] == ["n2_1", "n1", "n2_0", "n2_2", "n2_3", "n2_4", "n2"]
