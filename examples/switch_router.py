"""The router of a mixture of experts that sends each token to one expert (Fedus et al. 2022, "Switch Transformers")."""

from __future__ import annotations

import torch
from torch import nn


class SwitchRouter(nn.Module):
    """Scores ``(tokens, experts)`` → (expert, its weight, z-loss), each ``(tokens,)``.

    The z-loss keeps the scores small (Zoph et al. 2022).
    """

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(0.01 * torch.randn(experts))

    def forward(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        scores = scores + self.bias
        expert = scores.argmax(dim=-1)
        weight = torch.softmax(scores, dim=-1).gather(-1, expert[:, None]).squeeze(-1)
        return expert, weight, torch.logsumexp(scores, dim=-1).square()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32768, 64)]


def get_init_inputs() -> list[int]:
    return [64]
