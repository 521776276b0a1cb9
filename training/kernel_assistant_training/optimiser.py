"""Optimisers: Muon for the matrices inside the layers, AdamW for the embedding and the scales of norms.

Muon (Jordan and others, 2024) replaces the momentum of a matrix by the nearest matrix with orthonormal rows or columns,
so that all directions are learned equally fast. Steps are scaled as by Liu and others (2025, "Muon is scalable for LLM
training"), so that AdamW's learning rate and weight decay fit. `torch.optim.Muon` handles one matrix after another,
with 1,400 small launches a step for this model; the class here handles all matrices of the same shape at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from kernel_assistant_training.architecture import Llama

DECAY, MOMENTUM = 0.1, 0.95
#: Coefficients of a·x + b·x³ + c·x⁵, which moves singular values towards 1, and how often it is applied.
_COEFFICIENTS, _TIMES = (3.4445, -4.7750, 2.0315), 5
#: Typical root mean square of AdamW's steps, in learning rates.
_USUAL = 0.2


class Muon(torch.optim.Optimizer):
    """The Muon optimiser, for matrices only; `rate` is the learning rate. The state of the first matrix of each shape
    stores the momentum of all matrices of that shape."""

    def __init__(self, matrices: Iterable[Tensor], rate: float) -> None:
        super().__init__(list(matrices), {"lr": rate, "weight_decay": DECAY})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    shapes.setdefault(weight.shape, []).append(weight)
            for shape, weights in shapes.items():
                gradients = torch.stack([weight.grad for weight in weights if weight.grad is not None])
                state = self.state[weights[0]]
                momentum = state.setdefault("momentum", torch.zeros_like(gradients))
                momentum.lerp_(gradients, 1 - MOMENTUM)
                steps = orthogonal(gradients.lerp(momentum, MOMENTUM)).to(gradients.dtype)
                torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(weights, list(steps.unbind()), alpha=-group["lr"] * _USUAL * max(shape) ** 0.5)


def orthogonal(matrices: Tensor) -> Tensor:
    """Returns for each matrix of `matrices` (n, rows, columns) approximately the nearest matrix whose singular values
    are all 1. The singular values of the result lie between 0.7 and 1.2."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x.to(torch.bfloat16 if x.is_cuda else torch.float32)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_TIMES):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    result: Tensor = x.mT if tall else x
    return result


def optimisers(model: Llama, kind: str, rate: float) -> list[torch.optim.Optimizer]:
    """Returns the optimisers of all weights. `kind` "adamw": AdamW alone; "muon": AdamW, and Muon for the matrices
    inside the layers. Weight decay applies to matrices, the embedding included, but not to the scales of norms."""
    matrices = [weight for weight in model.parameters() if weight.ndim == 2]
    scales = [weight for weight in model.parameters() if weight.ndim < 2]
    inside = [weight for weight in matrices if weight is not model.model.embed_tokens.weight] if kind == "muon" else []
    usual = [weight for weight in matrices if all(weight is not one for one in inside)]
    groups = [{"params": usual, "weight_decay": DECAY}, {"params": scales, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=True)
    return [adamw, Muon(inside, rate)] if inside else [adamw]
