"""Attention in an exported graph is called as outside of an export: which masks and repeated heads are left out, which
must stay, and that the graph still does what the module does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import Interpreter
from torch.nn import functional as F

from kernel_assistant.worker.graph.export import ExportedModule, trace
from kernel_assistant.worker.graph.noted_values import renewed

B, H, T, D = 3, 4, 6, 8
NEVER = float("-inf")

Forward = Callable[..., Any]
attention = F.scaled_dot_product_attention


class Attending(torch.nn.Module):
    kept: Tensor

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self._forward = forward
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.register_buffer("kept", lower_triangle())

    def forward(self, *args: Tensor) -> Any:
        return self._forward(self, *args)


def spread(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def heads(keys: int = T, of_keys: int = H) -> tuple[Tensor, ...]:
    return spread(B, H, T, D), spread(B, of_keys, keys, D), spread(B, of_keys, keys, D) + 1


def attentions(traced: ExportedModule) -> list[dict[str, Any]]:
    return [node for node in traced.graph["nodes"] if node["op"] == "scaled_dot_product_attention"]


def traced_and_run(forward: Forward, args: tuple[Tensor, ...]) -> ExportedModule:
    """The export, of which all results are the module's, in the same order of memory, for this batch and another."""
    model = Attending(forward)
    traced = trace(model, args, {})
    state = {**traced.program.constants, **dict(model.named_parameters()), **dict(model.named_buffers())}
    specs = traced.program.graph_signature.input_specs
    smaller = tuple(arg[:2] if len(arg) == B else arg for arg in args) if traced.graph["dims"] else args
    for given in (args, smaller):
        left = iter(given)
        held = [state[str(spec.target)] if spec.target else next(left) for spec in specs]
        found = Interpreter(traced.program.graph_module).run(*held)
        wanted = model(*given)
        for one, other in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            torch.testing.assert_close(one, other)
            assert one.stride() == other.stride()
    return traced


def call_of(forward: Forward, args: tuple[Tensor, ...]) -> tuple[list[Any], dict[str, Any], int]:
    """What follows q, k and v, the keywords, and how many nodes there are beside the attention."""
    traced = traced_and_run(forward, args)
    (node,) = attentions(traced)
    return node["args"][3:], node["kwargs"], len(traced.graph["nodes"]) - 1


def mask_of(make: Forward) -> Forward:
    return lambda self, q, k, v, *others: attention(q, k, v, make(self, q, k, *others))


def lower_triangle() -> Tensor:
    return torch.ones(T, T, dtype=torch.bool).tril()


def below(q: Tensor, k: Tensor, low: float) -> Tensor:
    return torch.full((q.shape[-2], k.shape[-2]), low).triu(1)


def by_places(self: Attending, q: Tensor, k: Tensor) -> Tensor:
    """As transformers has it: places of a batch that are read by index tensors."""
    places = torch.arange(T).expand(q.shape[0], -1)
    parts = (torch.diff(places, prepend=places[:, :1] - 1) != 1).cumsum(-1)
    batch = torch.arange(q.shape[0])[:, None, None, None]
    row, column = torch.arange(T)[None, None, :, None], torch.arange(T)[None, None, None, :]
    same = q.new_ones((), dtype=torch.bool) & (parts[batch, row] == parts[batch, column])
    return (same & (places[batch, column] <= places[batch, row])).expand(q.shape[0], -1, T, T)


DROPPED: dict[str, Forward] = {
    "all true": lambda self, q, k: torch.ones(T, k.shape[-2], dtype=torch.bool),
    "zeros": lambda self, q, k: torch.zeros(T, k.shape[-2]),
    "for each of the batch": lambda self, q, k: torch.ones(q.shape[0], 1, 1, k.shape[-2], dtype=torch.bool),
    "last of the context": lambda self, q, k: torch.arange(k.shape[-2]) <= torch.arange(T)[:, None] + k.shape[-2] - 1,
}
CAUSAL: dict[str, Forward] = {
    "tril": lambda self, q, k: lower_triangle(),
    "compared": lambda self, q, k: torch.arange(T) <= torch.arange(T)[:, None],
    "one for each head": lambda self, q, k: lower_triangle().expand(1, H, T, T),
    "minus infinity": lambda self, q, k: below(q, k, NEVER),
    "the lowest number": lambda self, q, k: below(q, k, torch.finfo(torch.float32).min)[None, None],
    "filled": lambda self, q, k: torch.zeros(T, T).masked_fill(~torch.ones(T, T).tril().bool(), NEVER),
    "transformers": by_places,
}
KEPT: dict[str, Forward] = {
    "a window": lambda self, q, k: lower_triangle().triu(-2),
    "the other triangle": lambda self, q, k: torch.ones(T, T, dtype=torch.bool).triu(),
    "more keys": lambda self, q, k: torch.ones(T, k.shape[-2], dtype=torch.bool).tril(),
    "not for all heads": lambda self, q, k: (
        (torch.arange(T) <= torch.arange(T)[:, None]) | (torch.arange(H) == 1)[:, None, None]
    ),
    "a row without keys": lambda self, q, k: torch.ones(T, T, dtype=torch.bool).tril(-1),
    "a low number": lambda self, q, k: below(q, k, -5.0),
    "lowest of float16": lambda self, q, k: below(q, k, torch.finfo(torch.float16).min),
    "a bias": lambda self, q, k: (torch.arange(T) - torch.arange(T)[:, None]) * 0.1,
    "a buffer": lambda self, q, k: self.kept,
    "a parameter": lambda self, q, k: below(q, k, NEVER) + self.weight,
    "the batch's number": lambda self, q, k: (torch.arange(q.shape[0]) < 4096)[:, None, None, None].expand(-1, 1, T, T),
    "chosen by the batch's number": lambda self, q, k: (
        (torch.arange(9) < 5).expand(2, 9)[:, torch.arange(q.shape[0])][0][:, None, None, None].expand(-1, 1, T, T)
    ),
    "random": lambda self, q, k: torch.rand(T, T) >= 0.0,
}


@pytest.mark.parametrize("name", DROPPED)
@pytest.mark.parametrize("keys", [T, T + 3])
def test_a_mask_that_keeps_everything_is_left_out(name: str, keys: int) -> None:
    assert call_of(mask_of(DROPPED[name]), heads(keys)) == ([], {}, 0)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_mask_becomes_a_flag(name: str) -> None:
    assert call_of(mask_of(CAUSAL[name]), heads()) == ([None, 0.0, True], {}, 0)


@pytest.mark.parametrize("name", KEPT)
def test_other_masks_stay(name: str) -> None:
    operands, _, _ = call_of(mask_of(KEPT[name]), heads(T + 3 if name == "more keys" else T))
    assert len(operands) == 1 and operands[0] is not None


@pytest.mark.parametrize(
    ("make", "mask"),
    [
        (lambda self, q, k, m: m, torch.ones(T, T, dtype=torch.bool)),
        (lambda self, q, k, m: m[:, None, None].bool() & self.kept, torch.ones(B, T)),
        (lambda self, q, k, m: (m > 0) | torch.ones(T, T, dtype=torch.bool), torch.ones(T, T)),
    ],
)
def test_a_mask_of_an_input_stays(make: Forward, mask: Tensor) -> None:
    operands, _, _ = call_of(mask_of(make), (*heads(), mask))
    assert len(operands) == 1


def test_a_mask_that_others_read_is_computed_for_them() -> None:
    def forward(self: Attending, q: Tensor, k: Tensor, v: Tensor) -> Any:
        mask = lower_triangle()
        return attention(q, k, v, mask) + 1, mask

    operands, _, others = call_of(forward, heads())
    assert operands == [None, 0.0, True] and others == 3


def in_another_order(self: Attending, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """PyTorch's fast kernel gives the queries' order of memory, but there is none for a mask of three dimensions."""
    turned = q.transpose(1, 2).contiguous().transpose(1, 2)
    return attention(turned, k, v, torch.ones(1, T, T, dtype=torch.bool))


def test_a_result_in_another_order_of_memory_is_read_by_reshape() -> None:
    traced = traced_and_run(lambda *given: in_another_order(*given).reshape(-1, H * T, D).exp(), heads())
    assert [node["op"] for node in traced.graph["nodes"]][-3:] == ["scaled_dot_product_attention", "reshape", "exp"]
    assert attentions(traced)[0]["args"][3:] == [] and attentions(traced)[0]["spec"]["strides"] is not None


def test_an_output_keeps_its_order_of_memory() -> None:
    (node,) = attentions(traced_and_run(in_another_order, heads()))
    assert len(node["args"]) == 4 and node["spec"]["strides"] is None


def test_an_order_of_memory_is_not_followed_into_nested_graphs() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(2, 3).T
    copy = graph.call_function(torch.ops.aten.clone.default, (x,))
    copy.meta["val"] = torch.empty(3, 2)
    values = renewed(graph, copy)
    assert values is not None and values[copy].stride() == (1, 3)
    graph.call_function(torch.ops.higher_order.cond, (copy,))
    assert renewed(graph, copy) is None


def repeated(x: Tensor, group: int = 2) -> Tensor:
    """As transformers repeats."""
    b, h, s, d = x.shape
    return x[:, :, None, :, :].expand(b, h, group, s, d).reshape(b, h * group, s, d)


def tiled(x: Tensor) -> Tensor:
    b, h, s, d = x.shape
    return x[:, None].expand(b, 2, h, s, d).reshape(b, 2 * h, s, d)


def grouped(of_keys: Forward, of_values: Forward | None = None, causal: bool = True) -> Forward:
    other = of_values or of_keys
    return lambda self, q, k, v: attention(q, of_keys(k), other(v), is_causal=causal)


@pytest.mark.parametrize(
    "repeat", [repeated, lambda x: x.repeat_interleave(2, 1), lambda x: x.repeat_interleave(2, dim=-3).contiguous()]
)
@pytest.mark.parametrize("causal", [False, True])
def test_repeated_heads_become_groups(repeat: Forward, causal: bool) -> None:
    operands, kwargs, others = call_of(grouped(repeat, causal=causal), heads(of_keys=2))
    assert operands == ([None, 0.0, True] if causal else [])
    assert (kwargs, others) == ({"enable_gqa": True}, 0)


def test_one_head_for_all_and_a_mask_that_goes_first() -> None:
    def forward(self: Attending, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, repeated(k, H), repeated(v, H), lower_triangle(), scale=0.3)

    assert call_of(forward, heads(of_keys=1)) == ([None, 0.0, True], {"scale": 0.3, "enable_gqa": True}, 0)


@pytest.mark.parametrize(
    "forward",
    [
        grouped(tiled),
        grouped(lambda x: x.repeat(1, 2, 1, 1)),
        grouped(repeated, tiled),
        grouped(repeated, lambda v: torch.cat([v, v], 1)),
        grouped(lambda k: k[:, :1].repeat_interleave(4, 1), repeated),
        grouped(lambda x: x.repeat_interleave(2, 1).transpose(2, 3).reshape(B, H, T, D)),
        grouped(repeated, lambda v: repeated(v[..., :4])),
        lambda self, q, k, v: attention(q, repeated(k), repeated(v), self.kept),
    ],
)
def test_other_heads_stay(forward: Forward) -> None:
    _, kwargs, _ = call_of(forward, heads(of_keys=2))
    assert kwargs == {}


@pytest.mark.parametrize(
    "of_repeated",
    [
        lambda q, k, v: (attention(q, k, v), k),
        lambda q, k, v: attention(q, k, v) + v,
        lambda q, k, v: attention(q + k, k, v) + attention(k, k, k),
    ],
    ids=["also given", "also added", "also asking"],
)
def test_heads_that_others_read_stay(of_repeated: Forward) -> None:
    traced = traced_and_run(lambda self, q, k, v: of_repeated(q, repeated(k), repeated(v)), heads(of_keys=2))
    assert all("enable_gqa" not in node["kwargs"] for node in attentions(traced))


def test_layers_may_share_keys() -> None:
    def forward(self: Attending, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = repeated(k), repeated(v)
        return attention(attention(q, keys, values), keys, values)

    nodes = attentions(traced_and_run(forward, heads(of_keys=2)))
    assert [node["kwargs"] for node in nodes] == [{"enable_gqa": True}] * 2
