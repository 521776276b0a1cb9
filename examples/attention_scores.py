"""Attention probabilities from raw scores, for a model that has to look at them (so no fused attention)."""

from __future__ import annotations

import math

import torch
from torch import nn


class AttentionScores(nn.Module):
    """Softmax over the keys of scaled, masked and temperature-adjusted scores.

    Args of ``forward``:
        scores: query-key products, ``(batch, heads, queries, keys)``.
        mask: added to the scores, ``(batch, 1, queries, keys)``: 0 to keep, a large negative number to drop.
    """

    def __init__(self, head_size: int, heads: int) -> None:
        super().__init__()
        self.scale = 1.0 / math.sqrt(head_size)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))

    def forward(self, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        logits = scores * self.scale / self.temperature + mask
        return torch.softmax(logits, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    causal = torch.full((512, 512), -10000.0).triu(diagonal=1)
    return [torch.randn(2, 8, 512, 512), causal.expand(2, 1, 512, 512).contiguous()]


def get_init_inputs() -> list[int]:
    return [64, 8]
