"""Operators that torch decomposes into parts at export: kernels and calls of PyTorch compute the parts right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernel_assistant.generator.lower.expand import EXPANSIONS
from kernel_assistant.worker.graph.composites import DECOMPOSED
from tests.generator.by_parts import ByParts
from tests.generator.harness import Function, Tensors, bindings, export

pytestmark = pytest.mark.sampled(3)


def _spread(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _holes(*shape: int) -> torch.Tensor:
    """Numbers between which NaN and zeros stand."""
    value = _spread(*shape)
    return torch.where(value > 1, float("nan"), torch.where(value < -1, 0.0, value))


X, Y = _spread(6, 9), _spread(9, 6).T
CASES: dict[str, tuple[nn.Module | Callable[..., Any], Tensors]] = {
    "addr": (lambda m, a, b: torch.addr(m, a, b, beta=0.5, alpha=2.0), (X, _spread(6), _spread(9))),
    "aminmax": (lambda x: torch.aminmax(x, dim=1), (X,)),
    "block_diag": (lambda a, b: torch.block_diag(a, b) * 2, (_spread(3, 4), _spread(2, 5))),
    "column_stack": (lambda a, b: torch.column_stack((a, b)), (_spread(6), X)),
    "count_nonzero": (lambda x: torch.count_nonzero(x.relu(), dim=1), (X,)),
    "cross": (lambda a, b: torch.cross(a, b, dim=-1), (_spread(6, 3), _spread(2, 6, 3)[0])),
    "cumulative_trapezoid": (lambda x: torch.cumulative_trapezoid(x, dim=1), (X,)),
    "diagflat": (lambda x: torch.diagflat(x) + 1, (_spread(7),)),
    "diff": (lambda x: torch.diff(x, dim=1), (X,)),
    "dist": (lambda a, b: torch.dist(a, b, p=2), (X, Y)),
    "float_power": (lambda x: torch.float_power(x, 2), (X,)),
    "gru_cell": (nn.GRUCell(9, 5), (X, _spread(6, 5))),
    "inner": (lambda a, b: torch.inner(a, b).relu(), (X, _spread(4, 9))),
    "isclose": (lambda a, b: torch.isclose(a.round(), b.round()), (X, Y)),
    "kron": (torch.kron, (_spread(3, 4), _spread(2, 5))),
    "linalg_cross": (torch.linalg.cross, (_spread(6, 3), _spread(1, 3))),
    "linalg_matrix_norm": (lambda x: torch.linalg.matrix_norm(x, 1), (_spread(3, 4, 5),)),
    "lstm_cell": (nn.LSTMCell(9, 5), (X,)),
    "nanmean": (lambda x: torch.nanmean(x, dim=1), (_holes(6, 9),)),
    "nansum": (lambda x: torch.nansum(x, dim=0), (_holes(6, 9),)),
    "renorm": (lambda x: torch.renorm(x, 2, 0, 1.5), (X,)),
    "rnn_relu_cell": (nn.RNNCell(9, 5, nonlinearity="relu"), (X, _spread(6, 5))),
    "rnn_tanh_cell": (nn.RNNCell(9, 5), (X,)),
    "rot90": (lambda x: torch.rot90(x, 1, (0, 1)) + 1, (X,)),
    "special_xlog1py": (lambda a, b: torch.special.xlog1py(a, b.abs()), (X, Y)),
    "tensordot": (lambda a, b: torch.tensordot(a, b, dims=1).relu(), (X, _spread(9, 4))),
    "trace": (torch.trace, (_spread(7, 7),)),
    "trapezoid": (lambda x: torch.trapezoid(x, dim=1), (X,)),
}
#: Operators that have a form here since their parts were tried.
OWN: dict[str, tuple[nn.Module | Callable[..., Any], Tensors]] = {
    "bilinear": (nn.Bilinear(9, 4, 5), (X, _spread(6, 4))),
    "bilinear of rows": (nn.Bilinear(9, 4, 5, bias=False), (_spread(2, 6, 9), _spread(2, 6, 4))),
    "rrelu": (F.rrelu, (X,)),
    "cummax": (lambda x: torch.cummax(x * 2, 1).values, (_holes(6, 90),)),
    "cummin": (lambda x: torch.cummin((x * 9).to(torch.int64), 0).values + 1, (X,)),
    "cummax with positions": (lambda x: torch.cummax(x, 1), (_holes(6, 90),)),
    "positions of cummin": (lambda x: torch.cummin(x.bfloat16(), 0).indices * 2, (_holes(90, 6),)),
    "take": (torch.take, (X.T, torch.tensor([[0, 53, 7], [11, -1, -54]]))),
    "narrow_copy": (lambda x: torch.narrow_copy(x, 1, 2, 4) * 2, (X,)),
    "lgamma": (torch.lgamma, (torch.cat([X.reshape(-1) * 20, torch.tensor([0.0, -1.0, 1.0, 2.0, 1e10])]),)),
}


@pytest.mark.parametrize("name", [*CASES, *OWN])
def test_by_parts(name: str, tmp_path: Path) -> None:
    function, args = (CASES | OWN)[name]
    model = function if isinstance(function, nn.Module) else Function(function)
    graph = export(model, *args)
    assert not {node.op.partition(".")[0] for node in graph.nodes} & DECOMPOSED
    with torch.no_grad():
        want = model(*args)
    found = ByParts(graph, tmp_path)(bindings(graph, model, args))
    for mine, theirs in zip(found, want if isinstance(want, tuple) else (want,), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_every_operator_is_tried() -> None:
    assert set(CASES) == DECOMPOSED and not DECOMPOSED & set(EXPANSIONS)
