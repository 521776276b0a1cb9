"""Exports in which torch prepares only the composite operators of the module give the same graphs in less time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kernel_assistant.worker.graph import composites, export
from tests.generator.harness import Function
from tests.worker.test_in_place import module_of, traced

pytestmark = pytest.mark.sampled(3)

X = torch.randn(4, 6)
IMAGES = torch.randn(4, 6, 8, 8)

#: Among them what torch takes apart itself, into composites that the module's graph has not got.
CALLS: dict[str, tuple[Any, torch.Tensor]] = {
    "linear, norm, gelu": (nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU()), X),
    "hardshrink": (F.hardshrink, X),
    "softshrink": (F.softshrink, X),
    "in place": (lambda x: F.selu(x * 2, inplace=True).square_(), X),
    "views": (lambda x: x.reshape(-1).unflatten(0, (4, 6)).swapaxes(0, 1).chunk(2)[0].contiguous(), X),
    "types": (lambda x: x.to(torch.bfloat16).type_as(x), X),
    "dropout": (nn.Dropout(), X),
    "batch norm": (nn.BatchNorm2d(6), IMAGES),
    "instance norm": (nn.InstanceNorm2d(6), IMAGES),
    "resized": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), IMAGES),
    "pooling": (lambda x: F.max_pool2d(F.adaptive_avg_pool2d(x, 4), 2), IMAGES),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), IMAGES),
    "heads": (nn.MultiheadAttention(6, 2, batch_first=True), X),
    "recurrent": (nn.GRU(6, 5), X),
    "einsum": (lambda x: torch.einsum("bi,bj->bij", x, x), X),
    "margin": (lambda x: F.multi_margin_loss(x, torch.zeros(4, dtype=torch.long)), X),
    "square root of a mean": (lambda x: torch.linalg.norm(x - x.mean(0), dim=1).cumsum(0).var(), X),
}


@pytest.mark.parametrize("name", CALLS)
def test_graphs_are_those_of_all_composites(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call, x = CALLS[name]
    module = module_of(call)
    inputs = (x, x, x) if isinstance(module, nn.MultiheadAttention) else (x,)
    mine = traced(module, inputs)
    monkeypatch.setattr(export, "only_those_of", lambda program: nullcontext())
    assert mine == traced(module, inputs)


def _preserved(call: Callable[..., Any]) -> set[str] | None:
    program = export.export_program(Function(call), (X,), {}, [frozenset()])
    found = composites._preserved(program)
    return found if found is None else {str(one) for one in found}


def test_composites_of_the_graph_alone_are_prepared_or_all_where_others_may_be_inside() -> None:
    """`hardshrink` becomes `where` with a number, which is a composite operator."""
    assert _preserved(lambda x: F.linear(x, x).relu().reshape(-1)) == {"aten.linear.default"}
    assert _preserved(F.hardshrink) is None


Y = torch.randn(4, 6)
SPELLED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "multiply": (lambda x, y: x.multiply(y), lambda x, y: x * y),
    "divide by mode": (lambda x, y: x.divide(y, rounding_mode="floor"), lambda x, y: x.div(y, rounding_mode="floor")),
    "subtract": (lambda x, y: torch.subtract(x, y, alpha=2), lambda x, y: torch.sub(x, y, alpha=2)),
    "negative, absolute": (lambda x, y: x.negative().absolute(), lambda x, y: x.neg().abs()),
    "greater": (lambda x, y: x.greater(0.5) | x.less_equal(y), lambda x, y: x.gt(0.5) | x.le(y)),
    "clip": (lambda x, y: x.clip(-0.5, 1), lambda x, y: x.clamp(-0.5, 1)),
    "concat": (lambda x, y: torch.concat([x, y], 1), lambda x, y: torch.cat([x, y], 1)),
    "max of two": (torch.max, torch.maximum),
    "min of two": (torch.min, torch.minimum),
    "arctan2": (lambda x, y: torch.arctan2(x, y).arcsinh(), lambda x, y: torch.atan2(x, y).asinh()),
    "special": (lambda x, y: torch.special.expit(x) + torch.special.erf(y), lambda x, y: x.sigmoid() + y.erf()),
    "flips": (lambda x, y: x.fliplr() + y.flipud(), lambda x, y: x.flip(1) + y.flip(0)),
    "axes": (lambda x, y: x.moveaxis(0, 1) * y.swapdims(0, 1), lambda x, y: x.permute(1, 0) * y.transpose(0, 1)),
    "beside a composite": (lambda x, y: F.linear(x.absolute(), y), lambda x, y: F.linear(x.abs(), y)),
}


@pytest.mark.parametrize("name", SPELLED)
def test_an_operator_has_one_name(name: str) -> None:
    mine, plain = (traced(Function(one), (X, Y))[0] for one in SPELLED[name])
    assert mine["nodes"] == plain["nodes"] and mine["outputs"] == plain["outputs"]
