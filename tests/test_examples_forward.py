"""The examples are correct: they run, follow their formula and size, and give the same result twice."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from kernel_assistant.generator.support import Family, classify
from kernel_assistant.records import InputSource, OpGraph
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.source import build_task
from kernel_assistant.worker.graph.export import export_graph

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[nn.Module, list[torch.Tensor]]:
    """The module in evaluation mode and its inputs, as declared in the file and found by the command line."""
    torch.manual_seed(0)
    task = build_task(str(EXAMPLES / name), target="cpu", numerics="kernelbench")
    for folder in task.search_path:
        monkeypatch.syspath_prepend(folder)
    file = importlib.import_module(task.module_name)
    (workload,) = task.workloads
    if task.source is InputSource.get_inputs:
        init, inputs = getattr(file, "get_init_inputs", list)(), file.get_inputs()
    else:
        init, inputs = eval(task.init or "()", vars(file)), eval(workload.args, {"torch": torch, **vars(file)})
    return getattr(file, task.class_name)(*init).eval(), list(inputs)


def gated_rms_norm_formula(module: nn.Module, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    gated = x * gate / (1 + (-gate).exp())
    return gated / (gated.square().sum(-1, keepdim=True) / x.shape[-1] + 1e-6).sqrt() * module.weight


def geglu_residual_formula(
    module: nn.Module, value: torch.Tensor, gate: torch.Tensor, residual: torch.Tensor
) -> torch.Tensor:
    g = gate + module.gate_bias
    gelu = 0.5 * g * (1 + ((2 / torch.pi) ** 0.5 * (g + 0.044715 * g**3)).tanh())
    return residual + module.scale * (value + module.value_bias) * gelu


def attention_scores_formula(module: nn.Module, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    weights = (scores / 8 / module.temperature + mask).exp()
    return weights / weights.sum(-1, keepdim=True)


def norm_gelu_formula(module: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    centred = hidden - hidden.mean(-1, keepdim=True)
    normed = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return normed * 0.5 * (1 + torch.erf(normed / 2**0.5))


def masked_cumsum_formula(module: nn.Module, rates: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
    return torch.log1p(rates.exp()).mul(observed).cumsum(-1) * 0.5


def resnet_stem_formula(module: nn.Module, image: torch.Tensor) -> torch.Tensor:
    positive = (image / (1 + 1e-5) ** 0.5).clamp(min=0)
    rows = nn.functional.pad(positive, (1, 1, 1, 1)).unfold(2, 3, 2).unfold(3, 3, 2)
    return rows.flatten(-2).amax(-1)


def smoothed_cross_entropy_formula(module: nn.Module, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    logs = logits - logits.exp().sum(-1, keepdim=True).log()
    rows = -0.9 * logs[torch.arange(len(target)), target] - 0.1 * logs.mean(-1)
    return rows[target != 0].mean()


def text_embedding_formula(module: nn.Module, words: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
    total = module.word.weight[words] + module.position.weight[: words.shape[1]] + module.segment.weight[segments]
    centred = total - total.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-12).sqrt()


def perona_malik_formula(module: nn.Module, image: torch.Tensor) -> torch.Tensor:
    total = image.clone()
    for dim in (2, 3):
        step = image.diff(dim=dim)
        flow = 0.2 * step * (-100 * step**2).exp()
        total.narrow(dim, 0, image.shape[dim] - 1).add_(flow)
        total.narrow(dim, 1, image.shape[dim] - 1).sub_(flow)
    return total


def unet_merge_formula(module: nn.Module, coarse: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
    fine = torch.zeros(2, 64, 124, 124, dtype=coarse.dtype)
    fine[:, :, 2:-2, 2:-2] = coarse.repeat_interleave(2, 2).repeat_interleave(2, 3)
    both = torch.cat([fine, skip], 1)
    return torch.where(both > 0, both, 0.1 * both)


def average_attention_formula(module: nn.Module, tokens: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    means = torch.stack([tokens[:, : step + 1].mean(1) for step in range(tokens.shape[1])], 1)
    return tokens / (1 + (-gates[..., :512]).exp()) + means / (1 + (-gates[..., 512:]).exp())


def switch_router_formula(module: nn.Module, scores: torch.Tensor) -> tuple[torch.Tensor, ...]:
    scores = scores + module.bias
    best, total = scores.max(-1), scores.exp().sum(-1)
    return best.indices, best.values.exp() / total, total.log() ** 2


def rotary_formula(module: nn.Module, query: torch.Tensor, key: torch.Tensor) -> dict[str, torch.Tensor]:
    def turned(x: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(x.shape[2])[:, None] * 10000.0 ** (-torch.arange(0, 64, 2, dtype=x.dtype) / 64)
        pairs = torch.complex(x[..., :32], x[..., 32:]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([pairs.real, pairs.imag], -1)

    return {"query": turned(query), "key": turned(key)}


def channel_norm_net_formula(module: nn.Module, image: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
    normed = image / (image.square().sum(1, keepdim=True) / 64 + 1e-6).sqrt()
    return skip + normed / (1 + (-normed).exp())


FORMULAS: dict[str, Callable[..., Any]] = {
    "gated_rms_norm.py": gated_rms_norm_formula,
    "geglu_residual.py": geglu_residual_formula,
    "attention_scores.py": attention_scores_formula,
    "norm_gelu.py": norm_gelu_formula,
    "masked_cumsum.py": masked_cumsum_formula,
    "resnet_stem.py": resnet_stem_formula,
    "smoothed_cross_entropy.py": smoothed_cross_entropy_formula,
    "text_embedding.py": text_embedding_formula,
    "perona_malik.py": perona_malik_formula,
    "unet_merge.py": unet_merge_formula,
    "average_attention.py": average_attention_formula,
    "switch_router.py": switch_router_formula,
    "rotary.py": rotary_formula,
    "channel_norm_net/block.py": channel_norm_net_formula,
}


def test_no_example_is_left_out() -> None:
    files = {path.name for path in EXAMPLES.glob("*.py")}
    packages = {path.parent.name for path in EXAMPLES.glob("*/__init__.py")}
    assert files | packages == {name.partition("/")[0] for name in FORMULAS}


@pytest.mark.parametrize("name", FORMULAS)
@torch.no_grad()
def test_example_keeps_to_its_formula(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, inputs = load(name, monkeypatch)
    results, again = (tree_leaves(module(*inputs)) for _ in range(2))
    assert all(map(torch.equal, results, again))
    exact = [tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs]
    for result, want in zip(results, tree_leaves(FORMULAS[name](module.double(), *exact)), strict=True):
        assert result.dtype == (torch.float32 if want.is_floating_point() else want.dtype)
        torch.testing.assert_close(result.to(want.dtype), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", FORMULAS)
def test_example_can_be_written_for_both_targets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, inputs = load(name, monkeypatch)
    graph = from_builtins(export_graph(module.requires_grad_(False), tuple(inputs), {}), OpGraph)
    for target in ("cpu", "cuda"):
        assert isinstance(classify(graph, target), Family), classify(graph, target)


@pytest.mark.parametrize("name", FORMULAS)
def test_example_is_of_a_size_that_two_cores_can_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, inputs = load(name, monkeypatch)
    moved = [*inputs, *tree_leaves(module(*inputs))]
    assert 2e6 <= max(tensor.nbytes for tensor in moved) <= 64e6
    assert all(tensor.dtype in (torch.float32, torch.int64) and tensor.is_contiguous() for tensor in inputs)
