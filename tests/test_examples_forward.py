"""The examples are what they say: they run, keep to their formula and their size, and come out the same twice."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from kernel_assistant.records import InputSource
from kernel_assistant.source import build_task

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[nn.Module, list[torch.Tensor]]:
    """The module in evaluation mode and its inputs, as declared in the file, found as the command line finds them."""
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


def channel_norm_net_formula(module: nn.Module, image: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
    normed = image / (image.square().sum(1, keepdim=True) / 64 + 1e-6).sqrt()
    return skip + normed / (1 + (-normed).exp())


FORMULAS: dict[str, Callable[..., torch.Tensor]] = {
    "gated_rms_norm.py": gated_rms_norm_formula,
    "geglu_residual.py": geglu_residual_formula,
    "attention_scores.py": attention_scores_formula,
    "norm_gelu.py": norm_gelu_formula,
    "masked_cumsum.py": masked_cumsum_formula,
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
    result = module(*inputs)
    assert torch.equal(result, module(*inputs))
    want = FORMULAS[name](module.double(), *(tensor.double() for tensor in inputs))
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", FORMULAS)
def test_example_is_of_a_size_that_two_cores_can_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, inputs = load(name, monkeypatch)
    assert 2e6 <= max(tensor.nbytes for tensor in inputs) <= 64e6
    assert all(tensor.dtype == torch.float32 and tensor.is_contiguous() for tensor in inputs)
