"""Whole language models of transformers: their attention in the graph is what they call outside of an export."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import Interpreter

from kernel_assistant.worker.graph.export import ExportedModule, trace
from tests.worker.language_models import CONTEXT, KEY_HEADS, LAYERS, WIDTH, Decode, Prefill, qwen3, tokens


def calls(traced: ExportedModule) -> list[tuple[list[Any], dict[str, Any]]]:
    """What follows q, k and v in each attention, and its keywords without the scale."""
    nodes = [node for node in traced.graph["nodes"] if node["op"] == "scaled_dot_product_attention"]
    return [(node["args"][3:], {**node["kwargs"], "scale": 0}) for node in nodes]


def traced_and_run(model: torch.nn.Module, args: tuple[Tensor, ...]) -> ExportedModule:
    """The export, of which the result is the model's."""
    traced = trace(model, args, {})
    state = {**traced.program.constants, **dict(model.named_parameters(remove_duplicate=False))}
    state |= dict(model.named_buffers())
    given = iter(args)
    specs = traced.program.graph_signature.input_specs
    held = [state[str(spec.target)] if spec.target else next(given) for spec in specs]
    with torch.no_grad():
        (found,) = Interpreter(traced.program.graph_module).run(*held)
        torch.testing.assert_close(found, model(*args), rtol=1e-4, atol=1e-5)
    return traced


@pytest.mark.parametrize("batch", [1, 3])
def test_a_prompt_is_causal_attention_of_groups(batch: int) -> None:
    traced = traced_and_run(Prefill(qwen3()), (tokens(batch, CONTEXT),))
    assert calls(traced) == [([None, 0.0, True], {"scale": 0, "enable_gqa": True})] * LAYERS
    assert {"index.Tensor", "cumsum", "expand", "clone"}.isdisjoint(node["op"] for node in traced.graph["nodes"])


@pytest.mark.parametrize("batch", [1, 3])
def test_a_token_behind_a_cache_sees_all_of_it(batch: int) -> None:
    cache = torch.randn(LAYERS, batch, KEY_HEADS, CONTEXT, WIDTH, generator=torch.Generator().manual_seed(1))
    traced = traced_and_run(Decode(qwen3()), (tokens(batch, 1), cache, cache + 1))
    assert calls(traced) == [([], {"scale": 0, "enable_gqa": True})] * LAYERS


def test_a_mask_of_padding_stays() -> None:
    mask = (torch.arange(CONTEXT) >= torch.tensor([[0], [2], [5]])).long()
    traced = traced_and_run(Prefill(qwen3()), (tokens(3, CONTEXT), mask))
    assert [len(operands) for operands, _ in calls(traced)] == [1] * LAYERS
    assert all(keywords == {"scale": 0} for _, keywords in calls(traced))
