"""Attention of few queries as a kernel: in the emulator with one block, on a GPU with clusters."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from kernel_assistant.generator.ir.schedule import make
from kernel_assistant.generator.loops.attention import as_attention
from kernel_assistant.generator.plan.partition import cut
from kernel_assistant.generator.search.search import initial
from tests.generator.by_parts import ByParts
from tests.generator.checks import check_around, check_compiles, check_names, check_read_back
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import H200, Function, Tensors, bindings, built_first, export, graph_of, spread


class Attention(nn.Module):
    """PyTorch's attention with these options; its mask is the fourth input."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any = None) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, mask, **self.options)


class Layer(nn.Module):
    """One token behind those of a cache: products, heads as views, joined keys and values."""

    def __init__(self, heads: int, key_heads: int, width: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.heads, self.key_heads, self.width = heads, key_heads, width
        self.q, self.o = nn.Linear(24, heads * width, bias=False), nn.Linear(heads * width, 24, bias=False)
        self.k, self.v = (nn.Linear(24, key_heads * width, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        count = x.shape[0]
        q = self.q(x).view(count, 1, self.heads, self.width).transpose(1, 2)
        k, v = (
            torch.cat([past, layer(x).view(count, 1, self.key_heads, self.width).transpose(1, 2)], 2)
            for past, layer in ((keys, self.k), (values, self.v))
        )
        mixed = nn.functional.scaled_dot_product_attention(q.cos(), k, v, enable_gqa=True)
        return self.o(mixed.transpose(1, 2).reshape(count, 1, -1)), k, v


def _qkv(heads: int, queries: int, keys: int, width: int, key_heads: int = 0, batch: int = 2) -> Tensors:
    few = key_heads or heads
    return spread(batch, heads, queries, width), spread(batch, few, keys, width), spread(batch, few, keys, width)


def _left_out(*shape: int) -> torch.Tensor:
    """A mask that keeps two of three keys, and no key for the first query of all."""
    kept = spread(*shape) > -0.4
    kept.view(-1, shape[-1])[0] = False
    return kept


def _least(*shape: int) -> torch.Tensor:
    """A mask that is added, as transformers makes it: the least number where a key is left out, in one row all."""
    kept = spread(*shape) > 0
    kept.view(-1, shape[-1])[-1] = False
    return torch.where(kept, 0.0, torch.finfo(torch.float32).min)


def _half(tensors: Tensors, dtype: torch.dtype = torch.bfloat16) -> Tensors:
    return tuple(one.to(dtype) if one.is_floating_point() else one for one in tensors)


def _between(tensors: Tensors) -> Tensors:
    """The same values, [batch, tokens, heads, width] in memory."""
    return tuple(one.transpose(1, 2).contiguous().transpose(1, 2) for one in tensors)


#: Name → module, inputs.
CASES: dict[str, tuple[nn.Module, Tensors]] = {
    "one query": (Attention(), _qkv(3, 1, 37, 16)),
    "groups": (Attention(enable_gqa=True), _qkv(4, 1, 50, 32, 2)),
    "groups of three queries": (Attention(enable_gqa=True, scale=0.3), _qkv(4, 3, 21, 8, 2)),
    "few keys": (Attention(), _qkv(2, 1, 3, 64)),
    "width that is no power of two": (Attention(), _qkv(2, 2, 19, 20)),
    "width that no vector fits": (Attention(), _qkv(2, 1, 19, 7)),
    "causal": (Attention(is_causal=True), _qkv(2, 5, 9, 16)),
    "mask of keys": (Attention(), (*_qkv(2, 2, 33, 16), _left_out(2, 1, 1, 33))),
    "mask of all": (Attention(), (*_qkv(2, 2, 33, 16), _left_out(2, 2, 2, 33))),
    "mask that is added": (Attention(enable_gqa=True), (*_qkv(4, 1, 33, 16, 2), spread(1, 33))),
    "mask of the least numbers": (Attention(), (*_qkv(2, 2, 33, 16), _least(2, 33))),
    "sum of two masks": (Attention(), (*_qkv(2, 2, 33, 16), _least(2, 33) + _least(33))),
    "keys of one token": (Attention(), _qkv(2, 1, 1, 16)),
    "bf16": (Attention(enable_gqa=True), _half(_qkv(4, 1, 40, 64, 2))),
    "f16, wide": (Attention(), _half(_qkv(1, 1, 12, 320), torch.float16)),
    "tokens before heads": (Attention(enable_gqa=True), _between(_qkv(4, 2, 29, 16, 2))),
    "layer": (Layer(4, 2, 8).eval(), (spread(3, 1, 24), spread(3, 2, 13, 8), spread(3, 2, 13, 8))),
}
#: For clusters.
WIDE: dict[str, tuple[nn.Module, Tensors]] = {
    "bf16, 128": (Attention(enable_gqa=True), _half(_qkv(16, 1, 2049, 128, 8, 1))),
    "f32, 64": (Attention(), _qkv(4, 1, 1000, 64)),
}
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def _check(model: nn.Module, args: Tensors, found: list[torch.Tensor]) -> None:
    """Compares with float64. NaN and infinities are the same."""
    exact = model.double()(*(one.double() if one.is_floating_point() else one for one in args))
    model.float()
    for given, wanted in zip(found, exact if isinstance(exact, tuple) else (exact,), strict=True):
        bound = BOUNDS[given.dtype] * wanted.abs().nan_to_num(0, 0, 0).max().clamp(min=1)
        torch.testing.assert_close(given.double(), wanted, atol=bound.item(), rtol=0, equal_nan=True)


def _on_host(model: nn.Module, args: Tensors, folder: Path, **parameters: int) -> list[torch.Tensor]:
    graph = export(model, *args)
    schedule = replace(initial(graph, "cuda", H200)[0], parts=(make("cuda", "attention", cluster=1, **parameters),))
    return OnHost(graph, schedule, folder)(bindings(graph, model, args))


@pytest.mark.parametrize("name", [name for name in CASES if name != "layer"])
def test_values(name: str, tmp_path: Path) -> None:
    model, args = CASES[name]
    _check(model, args, _on_host(model, args, tmp_path, warps=2, unroll=1 + len(name) % 2))


def test_a_layer_with_a_cache(tmp_path: Path) -> None:
    model, args = CASES["layer"]
    graph = export(model, *args)
    one = make("cuda", "attention", cluster=1, warps=2, unroll=1)
    parts = ByParts(graph, tmp_path, one)
    assert "residual" not in parts.kinds
    _check(model, args, parts(bindings(graph, model, args)))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite(value: float, tmp_path: Path) -> None:
    q, k, v = _qkv(2, 1, 40, 16)
    k[0, 0, 7, 3], v[1, 1, 8, 2] = value, value
    q[0, 0, 0, 3] = 1
    _check(Attention(), (q, k, v), _on_host(Attention(), (q, k, v), tmp_path, warps=2, unroll=2))


@pytest.mark.parametrize("name", CASES)
def test_text_is_read_back(name: str) -> None:
    graph = graph_of(CASES[name])
    check_read_back(graph, initial(graph, "cuda", H200)[:3])


def test_schedules_around_another() -> None:
    model, args = WIDE["bf16, 128"]
    (part,) = [part.graph for part in cut(export(model, *args), "cuda").parts if as_attention(part.graph)]
    assert check_around(part).parts[0]["cluster"] > 1
    ampere = replace(H200, name="A100", arch="sm_80")
    assert {one.parts[0]["cluster"] for one in initial(part, "cuda", ampere)} == {1}


def test_numbers_have_names() -> None:
    model, args = CASES["groups of three queries"]
    text = check_names(model, args)
    assert "E = D" in text and "0.3" not in text.partition("#include")[2]


@pytest.mark.parametrize(
    ("model", "args"),
    [
        (Attention(), _qkv(2, 9, 40, 16)),
        (Attention(), tuple(one.double() for one in _qkv(2, 1, 40, 16))),
        (Attention(), _qkv(2, 1, 40, 2048)),
        (Attention(dropout_p=0.5), _qkv(2, 1, 40, 16)),
    ],
    ids=["many queries", "f64", "wide", "dropout"],
)
def test_what_stays_a_call_of_pytorch(model: nn.Module, args: Tensors) -> None:
    graph = export(Function(lambda *given: model(*given).cos().sin()), *args)
    assert "attention" not in initial(graph, "cuda", H200)[0].forms()


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDE)
def test_clusters_compile(name: str, tmp_path: Path) -> None:
    graph = graph_of(WIDE[name])
    check_compiles(graph, initial(graph, "cuda", H200)[0], tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*CASES, *WIDE])
def test_values_on_a_gpu(name: str, tmp_path: Path) -> None:
    model, args = (CASES | WIDE)[name]
    graph = export(model, *args)
    for built in built_first(graph, H200, tmp_path, 8):
        _check(model, args, built(bindings(graph, model, args)))
