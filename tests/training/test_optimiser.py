"""Muon: steps are orthonormal, matrices of a shape are independent of each other, and its state can be restored."""

from __future__ import annotations

import pytest
import torch

from kernel_assistant_training.architecture import SMALL, Llama
from kernel_assistant_training.optimiser import MOMENTUM, Muon, optimisers, orthogonal


@pytest.mark.parametrize("shape", [(3, 24, 48), (2, 48, 24), (1, 32, 32)])
def test_singular_values_come_near_one_and_directions_stay(shape):
    torch.manual_seed(0)
    given = torch.randn(shape) * 1e-3
    found = orthogonal(given)
    left, values, right = torch.linalg.svd(given, full_matrices=False)
    kept = values > 0.05 * values.amax(-1, keepdim=True)
    along = left.mT @ found @ right.mT
    diagonal = along.diagonal(dim1=-2, dim2=-1)
    assert ((diagonal > 0.6) & (diagonal < 1.3))[kept].all()
    assert (along - torch.diag_embed(diagonal)).abs().max() < 1e-3


def test_matrices_of_one_shape_do_not_meet():
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(16, 8)) for _ in range(3)]
    alone = [torch.nn.Parameter(weight.detach().clone()) for weight in weights]
    together, apart = Muon(weights, 0.01), [Muon([weight], 0.01) for weight in alone]
    for _ in range(3):
        for first, second in zip(weights, alone, strict=True):
            first.grad = torch.randn(16, 8)
            second.grad = first.grad.clone()
        together.step()
        for one in apart:
            one.step()
    for first, second in zip(weights, alone, strict=True):
        torch.testing.assert_close(first, second)


def test_a_state_comes_back():
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(8, 8))
    muon = Muon([weight], 0.01)
    weight.grad = torch.randn(8, 8)
    muon.step()
    other = Muon([torch.nn.Parameter(weight.detach().clone())], 0.5)
    other.load_state_dict(muon.state_dict())
    (state,) = other.state.values()
    torch.testing.assert_close(state["momentum"], (1 - MOMENTUM) * weight.grad[None])
    assert other.param_groups[0]["lr"] == 0.01


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_every_weight_has_one_optimiser(kind):
    model = Llama(SMALL)
    found = optimisers(model, kind, 1e-3)
    held = [id(weight) for one in found for group in one.param_groups for weight in group["params"]]
    assert sorted(held) == sorted(map(id, model.parameters()))
    inside = [weight for one in found if isinstance(one, Muon) for weight in one.param_groups[0]["params"]]
    assert len(inside) == (7 * SMALL.layers if kind == "muon" else 0)
