"""Products of many dimensions, and attention as PyTorch has it, by parts on the CPU and whole on both targets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.graph_text import read_graph
from kernel_assistant.generator.lower import large_convolutions
from kernel_assistant.generator.search.search import initial
from kernel_assistant.generator.support import classify
from kernel_assistant.records import OpGraph
from kernel_assistant.targets import cpu
from tests.generator.by_parts import ByParts
from tests.generator.checks import check, check_compiles, check_on_gpu, check_read_back
from tests.generator.harness import (
    H200,
    Computed,
    Function,
    Tensors,
    bindings,
    built_on_cpu,
    export,
    graph_of,
    resized,
    spread,
)

pytestmark = pytest.mark.sampled(3)

Case = tuple[nn.Module, list[str], Tensors]


def _cosine(q: torch.Tensor, k: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Heads cut out of the last dimension, of length one, with a bias that all rows share."""
    heads = (F.normalize(one.view(-1, 9, 3, 8).transpose(1, 2), dim=-1) for one in (q, k))
    left, right = heads
    return torch.softmax(left @ right.transpose(-2, -1) * scale.exp() + bias, -1)


def _product(kinds: str, function: Callable[..., Any], *args: torch.Tensor) -> Case:
    """The function as a module; `kinds` has the first letter of each: "k" is a kernel, "l" a library."""
    return Function(function), [{"k": "kernel", "l": "library"}[kind] for kind in kinds], args


#: Name → module, kinds of its parts on CUDA, inputs.
PRODUCTS: dict[str, Case] = {
    "both repeat": _product("kkl", lambda a, b: torch.relu(a @ b), spread(2, 3, 1, 5, 6), spread(1, 4, 6, 7)),
    "one repeats, turned": _product(
        "kklk", lambda a, b: a.transpose(1, 2) @ b.transpose(-1, -2) + 1, spread(2, 5, 3, 6), spread(3, 7, 6)
    ),
    "five dimensions": _product("l", torch.matmul, spread(2, 3, 4, 5, 6), spread(2, 3, 4, 6, 7)),
    "a second bias": _product(
        "lk", lambda x, w, b, c: F.linear(x, w, b) + c, spread(5, 6), spread(7, 6), spread(7), spread(7)
    ),
    "two products added": _product(
        *("llk", lambda a, b, w, v, c: (F.linear(a, w, c) + F.linear(b, v)).tanh()),
        *(spread(5, 6), spread(5, 4), spread(7, 6), spread(7, 4), spread(7)),
    ),
    "two products added, one bias each": _product(
        *("ll", lambda a, b, w, v, c: torch.addmm(c, a, w.T) + torch.addmm(c, b, v.T)),
        *(spread(5, 6), spread(5, 4), spread(7, 6), spread(7, 4), spread(7)),
    ),
    "by a vector": _product("l", lambda a, b: a @ b, spread(2, 3, 5, 6), spread(6)),
    "a vector by": _product("l", lambda a, b: b @ a, spread(2, 3, 6, 5), spread(6)),
    "written in another order": _product(
        "klk", _cosine, spread(4, 9, 24), spread(4, 9, 24), spread(3, 1, 1), spread(3, 9, 9)
    ),
    "einsum to heads": _product(
        "kkl", lambda p, v: torch.einsum("bhqk,bkhd->bqhd", p * 2, v).relu(), spread(3, 4, 5, 6), spread(3, 6, 4, 8)
    ),
    "einsum of heads": _product(
        "kklk", lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(-1), spread(3, 5, 4, 8), spread(3, 6, 4, 8)
    ),
}


def _attention(**kwargs: Any) -> nn.Module:
    return Function(lambda *operands: F.scaled_dot_product_attention(*operands, **kwargs))


def _turned(function: Callable[..., torch.Tensor]) -> nn.Module:
    return Function(lambda *heads: function(*(one.transpose(1, 2) for one in heads)))


def _heads(keys: int = 10, few: int = 4, value: int = 16) -> Tensors:
    return spread(3, 4, 10, 16), spread(3, few, keys, 16), spread(3, few, keys, value)


def _mask() -> torch.Tensor:
    """The last query has no key at all."""
    return (spread(10, 9) > -0.5) & (torch.arange(10) < 9).unsqueeze(1)


def _written_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """What transformers writes in an export: a causal mask, and heads that are repeated."""
    mask = (torch.arange(10) <= torch.arange(10)[:, None]).expand(q.shape[0], 1, 10, 10)
    many = [one[:, :, None].expand(-1, 2, 2, 10, 16).reshape(-1, 4, 10, 16) for one in (k, v)]
    return F.scaled_dot_product_attention(q, *many, attn_mask=mask)


ATTENTION: dict[str, tuple[nn.Module, Tensors]] = {
    "plain": (_attention(), _heads()),
    "causal": (_attention(is_causal=True), _heads()),
    "causal, more keys": (_attention(is_causal=True), _heads(12)),
    "causal, fewer keys": (_attention(is_causal=True), _heads(4)),
    "scale": (_attention(scale=0.3), _heads(9)),
    "mask": (_attention(), (*_heads(9), _mask())),
    "bias": (_attention(), (*_heads(9), spread(3, 1, 10, 9))),
    "groups of heads": (_attention(enable_gqa=True), _heads(9, 2)),
    "groups, causal": (_attention(enable_gqa=True, is_causal=True), _heads(9, 2)),
    "groups, written out": (Function(_written_out), _heads(10, 2)),
    "wide values": (_attention(), _heads(9, 4, 24)),
    "three dimensions": (_attention(), tuple(one[:, 0] for one in _heads(9))),
    "turned heads": (_turned(F.scaled_dot_product_attention), tuple(one.transpose(1, 2).clone() for one in _heads())),
    "half": (_attention(), tuple(one.half() for one in _heads(9))),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_by_parts(name: str, tmp_path: Path) -> None:
    model, kinds, args = PRODUCTS[name]
    graph = export(model, *args)
    parts = ByParts(graph, tmp_path)
    assert parts.kinds == kinds
    with torch.no_grad():
        (got,), want = parts(bindings(graph, model, args)), model(*args)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    check_read_back(graph, initial(graph, "cuda", H200)[:1])


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("vectors", [torch.matmul, torch.dot], ids=["matmul", "dot"])
def test_a_product_of_two_vectors_is_a_sum(vectors: Any, target: str, tmp_path: Path) -> None:
    model, args = Function(lambda a, b: vectors(a, b) * 2), (spread(30), spread(30) + 1)
    graph = export(model, *args)
    assert classify(graph, target) == "rows"
    if target == "cpu":
        check(model, args, built_on_cpu(graph, tmp_path))


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_alone_by_parts(name: str, tmp_path: Path) -> None:
    model, args = ATTENTION[name]
    graph = export(model, *args)
    parts = ByParts(graph, tmp_path)
    assert parts.kinds.count("library") == 2 and "residual" not in parts.kinds
    with torch.no_grad():
        (got,), want = parts(bindings(graph, model, args)), model(*args)
    bound = 1e-5 if want.dtype is torch.float32 else 2e-3
    torch.testing.assert_close(got, want, rtol=bound, atol=bound)


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_alone_on_the_cpu(name: str, tmp_path: Path) -> None:
    """Both products are sums in our kernels: nothing as large as all terms is written."""
    model, args = ATTENTION[name]
    graph = export(model, *args)
    built = built_on_cpu(graph, tmp_path)
    assert not built.candidate.plan.residual
    assert len(built.candidate.plan.launches) <= 3
    check(model, args, built)
    if name != "mask" and "B" in graph.dims:
        check(model, resized(args, 5), built)


@pytest.mark.parametrize("between", [False, True], ids=["alone", "between products"])
def test_on_the_cpu_attention_that_is_not_tiny_is_refused_by_name(between: bool) -> None:
    heads = tuple(spread(2, 3, 12, 16) for _ in range(3))
    graph = export(Between(False), spread(2, 12, 32)) if between else export(_attention(), *heads)
    name = "linear" if between else "scaled_dot_product_attention"
    assert classify(graph, "cpu") == f"operator {name}: nothing is left for a kernel beside PyTorch's own calls"
    assert classify(graph, "cuda") == "parts"


class Between(nn.Module):
    """Attention between products with biases, as models have it; `keywords` go to the attention."""

    def __init__(self, packed: bool, keys: int = 4, **keywords: Any) -> None:
        super().__init__()
        torch.manual_seed(5)
        rows = (96,) if packed else (32, keys * 8, keys * 8)
        self.heads, self.out = nn.ModuleList(nn.Linear(32, size) for size in rows), nn.Linear(32, 32)
        self.keywords = keywords

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        split = [part for heads in self.heads for part in heads(x).split(32, -1)]
        mixed = F.scaled_dot_product_attention(
            *(one.view(*x.shape[:2], -1, 8).transpose(1, 2) for one in split), **self.keywords
        )
        found: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(x.shape))
        return found


BETWEEN = {
    "three products": Between(False),
    "one product": Between(True),
    "scale, causal": Between(False, is_causal=True, scale=0.3),
    "groups": Between(False, 2, enable_gqa=True),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_attention_between_products_only(name: str, tmp_path: Path) -> None:
    model, args = BETWEEN[name], (spread(3, 7, 32),)
    graph = export(model, *args)
    assert classify(graph, "cuda") == "parts"
    check(model, args, built_on_cpu(graph, tmp_path))


def test_attention_beside_others_stays_pytorchs() -> None:
    graph = export(Function(lambda q, k, v: F.scaled_dot_product_attention(q * 2, k, v).relu()), *_heads())
    for target, facts in (("cpu", cpu.facts()), ("cuda", H200)):
        plan = emit(graph, initial(graph, target, facts)[0]).plan
        assert [launch.call.call.op for launch in plan.launches if launch.call] == ["scaled_dot_product_attention"]


@pytest.mark.parametrize(
    "model",
    [_attention(dropout_p=0.5), Function(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1))],
)
def test_attention_that_draws_is_refused(model: nn.Module) -> None:
    assert classify(export(model, *_heads()), "cuda").startswith("operator scaled_dot_product_attention: nothing")


@pytest.mark.parametrize(("target", "hidden"), [("cpu", 5), ("cuda", 1500)])
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn_tanh"])
def test_a_recurrent_layer_alone_is_refused_by_name(name: str, target: str, hidden: int) -> None:
    """On the CPU, and where no GPU has room for its weights."""
    kinds = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN}
    model = Computed(lambda x, layer: layer(x)[0], kinds[name](6, hidden, bidirectional=True))
    reason = classify(export(model, spread(4, 3, 6)), target)
    assert reason == f"operator {name}.input: nothing is left for a kernel beside PyTorch's own calls"


def _convolution(size: int, filters: int) -> OpGraph:
    """x [16, 64, size, size] by filters of filters × filters elements, then ReLU."""
    out = size - filters + 1
    lines = (
        "dims",
        f"input x0 f32[16,64,{size},{size}]",
        f"input p0 f32[8,64,{filters},{filters}]",
        "input p1 f32[8]",
        f"%n0 = conv2d(%x0, %p0, %p1) f32[16,8,{out},{out}]",
        f"%n1 = gelu(%n0) f32[16,8,{out},{out}]",
        "return %n1",
    )
    return read_graph(lines)


@pytest.mark.parametrize(
    ("size", "filters", "launches"),
    [(64, 1, ["cudnn.conv", ""]), (2048, 1, ["cublaslt.matmul", ""]), (2048, 3, ["conv2d", ""])],
)
def test_convolutions_of_more_elements_than_cudnn_counts(size: int, filters: int, launches: list[str]) -> None:
    graph = _convolution(size, filters)
    plan = emit(graph, initial(graph, "cuda", H200)[0]).plan
    assert [launch.library or (launch.call.call.op if launch.call else "") for launch in plan.launches] == launches


def test_a_large_convolution_as_a_product(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a limit that small memory can exceed."""
    monkeypatch.setattr(large_convolutions, "MOST_ELEMENTS", 4000)
    model, args = nn.Sequential(nn.Conv2d(6, 9, 1), nn.GELU()), (spread(5, 6, 13, 11),)
    graph = export(model, *args)
    parts = ByParts(graph, tmp_path)
    assert parts.kinds == ["library", "kernel"]
    with torch.no_grad():
        torch.testing.assert_close(parts(bindings(graph, model, args))[0], model(*args), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mask", "groups, causal", "half"])
def test_attention_compiles_for_cuda(name: str, tmp_path: Path) -> None:
    graph = graph_of(ATTENTION[name])
    check_compiles(graph, initial(graph, "cuda", H200)[0], tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*PRODUCTS, *ATTENTION])
def test_right_on_the_gpu(name: str, tmp_path: Path) -> None:
    model, *_, args = (PRODUCTS | ATTENTION)[name]
    check_on_gpu(model, args, tmp_path, 1, bound=1e-4)
