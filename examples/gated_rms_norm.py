"""The normalisation in front of the output projection of a gated linear-attention block (Mamba-2, GLA, RetNet)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class GatedRMSNorm(nn.Module):
    """RMS norm of ``x * silu(gate)`` over the last dimension, with a learned weight.

    Shapes: ``x`` and ``gate`` are ``(batch, tokens, features)``, so is the result.
    """

    def __init__(self, features: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        gated = x * F.silu(gate)
        mean_square = gated.pow(2).mean(dim=-1, keepdim=True)
        return gated * torch.rsqrt(mean_square + self.eps) * self.weight


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 512, 3072), torch.randn(4, 512, 3072)]


def get_init_inputs() -> list[int]:
    return [3072]
