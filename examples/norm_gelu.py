"""The head of a masked-language model between its two projections: layer norm, then GELU."""

from __future__ import annotations

import torch
from torch import nn


class NormGelu(nn.Module):
    """Layer norm over the last dimension followed by the exact GELU. ``(batch, tokens, features)`` in and out."""

    def __init__(self, features: int = 1024) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features, eps=1e-5)
        self.activation = nn.GELU()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.activation(self.norm(hidden))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 512, 1024)]
