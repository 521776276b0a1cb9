"""Attention as people write it: transposed, then viewed, with PyTorch's calls between our kernels. No call copies what
eager PyTorch does not copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.generator.checks import check_on_cpu
from tests.generator.harness import bindings, export

HEADS, WIDTH = 4, 8


class Attention(nn.Module):
    """Projections around a form of attention, and something for a kernel behind it."""

    def __init__(self, inside: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor], groups: int) -> None:
        super().__init__()
        size = HEADS * WIDTH
        self.inside = inside
        self.query, self.out = nn.Linear(size, size), nn.Linear(size, size)
        self.key, self.value = nn.Linear(size, groups * WIDTH), nn.Linear(size, groups * WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.out(self.inside(self.query(x), self.key(x), self.value(x)))) * 2


def _heads(x: torch.Tensor) -> torch.Tensor:
    return x.view(x.shape[0], x.shape[1], -1, WIDTH).transpose(1, 2)


def _fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    found = F.scaled_dot_product_attention(_heads(q * 0.5), _heads(k), _heads(v), scale=1.0)
    return found.transpose(1, 2).reshape(q.shape)


def _copied(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    found = F.scaled_dot_product_attention(*(_heads(one).contiguous() for one in (q, k, v)))
    return found.transpose(1, 2).contiguous().view(q.shape)


def _products(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    weights = (_heads(q) @ _heads(k).transpose(-1, -2) / WIDTH**0.5).softmax(-1)
    return (weights @ _heads(v)).permute(0, 2, 1, 3).contiguous().view(*q.shape[:2], -1)


def _grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    k, v = (
        _heads(one)[:, :, None].expand(-1, -1, HEADS // 2, -1, -1).reshape(one.shape[0], HEADS, -1, WIDTH)
        for one in (k, v)
    )
    return F.scaled_dot_product_attention(_heads(q), k, v).transpose(1, 2).flatten(2)


def _turned(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Rotary positions and norms of heads: kernels read and write permuted values."""

    def rotated(x: torch.Tensor) -> torch.Tensor:
        x = F.rms_norm(x.view(*x.shape[:2], -1, WIDTH), (WIDTH,)).transpose(1, 2)
        left, right = x.chunk(2, -1)
        return x * 0.8 + torch.cat((-right, left), -1) * 0.6

    return F.scaled_dot_product_attention(rotated(q), rotated(k), _heads(v)).transpose(1, 2).reshape(q.shape)


def _sequence_first(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    length, batch = q.shape[:2]
    q, k, v = (one.contiguous().view(length, batch * HEADS, WIDTH).transpose(0, 1) for one in (q * 0.3, k, v))
    found = torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v)
    return found.transpose(0, 1).contiguous().view(length, batch, HEADS * WIDTH)


def _windows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Windows of a row, as Swin cuts them: two views on each side."""

    def cut(x: torch.Tensor) -> torch.Tensor:
        return x.roll(-1, 1).view(x.shape[0], 2, x.shape[1] // 2, -1).reshape(-1, x.shape[1] // 2, x.shape[2])

    found = _products(cut(q), cut(k), cut(v))
    return found.view(q.shape[0], 2, -1, q.shape[2]).reshape(q.shape).roll(1, 1)


FORMS: dict[str, tuple[Callable[..., torch.Tensor], int]] = {
    "fused": (_fused, HEADS),
    "copied first": (_copied, HEADS),
    "products": (_products, HEADS),
    "grouped heads": (_grouped, 2),
    "rotary": (_turned, HEADS),
    "sequence first": (_sequence_first, HEADS),
    "windows": (_windows, HEADS),
}


class Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts elements that are copied by operators that only copy."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten.clone.default, torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default):
            self.elements[str(func)] += args[0].numel()
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("form", FORMS)
def test_right_at_several_sizes_and_nothing_is_copied_beside_eager(form: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    inside, groups = FORMS[form]
    model, x = Attention(inside, groups).eval(), torch.randn(3, 6, HEADS * WIDTH)
    graph = export(model, x)
    built = check_on_cpu(model, (x,), tmp_path)
    assert built.candidate.plan.residual
    bound, pointers, outputs, alive = built.bind(bindings(graph, model, (x,)))
    with torch.no_grad(), Copies() as eager:
        want = model(x)
    with torch.no_grad(), Copies() as ours:
        bound.run(pointers)
    torch.testing.assert_close(outputs[0], want, atol=2e-5, rtol=2e-5)
    assert outputs[0].stride() == want.stride() and alive
    assert sum(ours.elements.values()) <= sum(eager.elements.values()), (ours.elements, eager.elements)
