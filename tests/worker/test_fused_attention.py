"""Attention that is written out is found in each form, gives the same values, and is left alone where it must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.nn import functional as F

from kernel_assistant.worker.free_wins.fused_attention import fuse
from kernel_assistant.worker.graph.export import trace

pytestmark = pytest.mark.sampled(3)

Forward = Callable[..., Any]
B, H, T, D = 2, 3, 8, 4


class Net(torch.nn.Module):
    bias: Tensor

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self._forward = forward
        self.register_buffer("bias", torch.ones(16, 16).tril()[None, None])

    def forward(self, *args: Tensor) -> Any:
        return self._forward(self, *args)


def qkv(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    q, k, v = (torch.randn(*shape, dtype=dtype) for _ in range(3))
    return q, k, v


def exported(forward: Forward, args: tuple[Tensor, ...]) -> tuple[Net, ExportedProgram]:
    net = Net(forward)
    return net, trace(net, args, {}).program


def places(module: torch.fx.GraphModule) -> int:
    fused = torch.ops.aten.scaled_dot_product_attention.default
    return sum(node.target is fused for node in module.graph.nodes)


def causal_fill(self: Net, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    scores = scores.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
    return F.softmax(scores, dim=-1) @ v


def both(self: Net, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = (q @ k.mT * 0.5 + mask).masked_fill(self.bias[:, :, :T, :T] == 0, -1e9)
    return torch.softmax(scores, -1) @ v


def einsum(self: Net, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(torch.einsum("b h i d, b h j d -> b h i j", q, k) * 0.5, dim=-1)
    return torch.einsum("bhij,bhjd->bhid", weights, v)


FORMS: dict[str, Forward] = {
    "scaled": lambda self, q, k, v: torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(D), dim=-1) @ v,
    "plain": lambda self, q, k, v: F.softmax(torch.matmul(q, k.mT), -1) @ v,
    "scaled query": lambda self, q, k, v: F.dropout(((q * 0.3) @ k.mT).softmax(3), 0.1, training=False) @ v,
    "causal fill": causal_fill,
    "causal added": lambda self, q, k, v: torch.softmax(q @ k.mT * 0.5 + torch.full((T, T), -1e9).triu(1), -1) @ v,
    "kept": lambda self, q, k, v: (
        torch.softmax(torch.where(torch.arange(T) < 5, q @ k.mT * 0.5, float("-inf")), -1) @ v
    ),
    "added": lambda self, q, k, v, mask: torch.softmax(mask + q @ k.mT * 0.5, -1) @ v,
    "both": both,
    "in float": lambda self, q, k, v: torch.softmax((q @ k.mT * 0.5).float(), -1).to(q.dtype) @ v,
    "einsum": einsum,
}
FOUR, MASK = (B, H, T, D), torch.linspace(-3, 3, B * T * T).reshape(B, 1, T, T)
CAUSAL, MASKED = "(q, k, v, is_causal=True)", "(q, k, v, attn_mask=mask)"


@pytest.mark.parametrize(
    ("name", "args", "write"),
    [
        ("scaled", qkv(*FOUR), "(q, k, v)"),
        ("plain", qkv(*FOUR), "(q, k, v, scale=1)"),
        ("scaled query", qkv(*FOUR), "(q, k, v, scale=1)"),
        ("causal fill", qkv(*FOUR), CAUSAL),
        ("causal added", qkv(*FOUR), CAUSAL),
        ("kept", qkv(*FOUR), MASKED),
        ("added", (*qkv(*FOUR), MASK), MASKED),
        ("both", (*qkv(*FOUR), MASK), MASKED),
        ("added", (*qkv(*FOUR), MASK[0, 0, 0]), MASKED),
        ("in float", qkv(*FOUR, dtype=torch.bfloat16), "(q, k, v)"),
        ("einsum", qkv(*FOUR), "(q, k, v)"),
        ("scaled", qkv(B, T, D), "(q, k, v)"),
        ("causal added", qkv(B, T, D), CAUSAL),
        ("added", (*qkv(B, T, D), MASK[:, 0]), MASKED),
        ("scaled", qkv(T, D), "(q, k, v)"),
    ],
)
def test_it_is_found_and_gives_the_same_values(name: str, args: tuple[Tensor, ...], write: str) -> None:
    net, program = exported(FORMS[name], args)
    fused = fuse(program, __file__)
    assert fused is not None
    assert places(fused.module) == 1 and "softmax" not in str(fused.module.graph)
    code, _, line = fused.write.partition("  # line ")
    assert code == "F.scaled_dot_product_attention" + write
    assert int(line) == Net.forward.__code__.co_firstlineno + 1
    tolerance = 2e-2 if args[0].dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(fused.module(*args), net(*args), rtol=tolerance, atol=tolerance)


def test_other_sizes_of_the_free_dimension_go_through() -> None:
    net, program = exported(causal_fill, qkv(*FOUR))
    fused = fuse(program, "")
    assert fused is not None and "line" not in fused.write
    args = qkv(B + 3, H, T, D)
    torch.testing.assert_close(fused.module(*args), net(*args))


def read_twice(self: Net, q: Tensor, k: Tensor, v: Tensor) -> Any:
    weights = torch.softmax(q @ k.mT, -1)
    return weights @ v, weights


def heads_behind(self: Net, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k), -1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


OTHERS: dict[str, Forward] = {
    "read twice": read_twice,
    "other dimension": lambda self, q, k, v: torch.softmax(q @ k.mT, -2) @ v,
    "scaled after the mask": lambda self, q, k, v, mask: torch.softmax((q @ k.mT + mask) * 0.5, -1) @ v,
    "small fill": lambda self, q, k, v: (
        torch.softmax((q @ k.mT).masked_fill(self.bias[:, :, :T, :T] == 0, -1.0), -1) @ v
    ),
    "shared keys": lambda self, q, k, v: torch.softmax(q @ k[:, :1].mT, -1) @ v,
    "heads behind": heads_behind,
    "diagonal": lambda self, q, k, v: torch.einsum("bhii,bhij->bhij", torch.softmax(q @ k.mT, -1), v),
    "not normalised": lambda self, q, k, v: torch.sigmoid(q @ k.mT) @ v,
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_the_pattern_is_left_alone(name: str) -> None:
    args = (*qkv(*FOUR), MASK) if name == "scaled after the mask" else qkv(*FOUR)
    assert fuse(exported(OTHERS[name], args)[1], "") is None


def test_a_module_with_two_places_has_both_rewritten() -> None:
    def twice(self: Net, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return FORMS["plain"](self, FORMS["scaled"](self, q, k, v), k, v)

    net, program = exported(twice, qkv(*FOUR))
    fused = fuse(program, "")
    assert fused is not None and places(fused.module) == 2
    torch.testing.assert_close(fused.module(*qkv(*FOUR)), net(*qkv(*FOUR)))
