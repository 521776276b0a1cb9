"""Average attention (Zhang, Xiong and Su 2018): a decoder that attends to the mean of what it has seen so far."""

from __future__ import annotations

import torch
from torch import nn


class AverageAttention(nn.Module):
    """Gated mean over all earlier positions, the projection of the gates left to the caller.

    Args of ``forward``:
        tokens: ``(batch, steps, features)``.
        gates: input and forget gates before their sigmoid, ``(batch, steps, 2 * features)``.
    """

    def forward(self, tokens: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(1, tokens.shape[1] + 1, device=tokens.device, dtype=tokens.dtype)
        average = torch.cumsum(tokens, dim=1) / steps[:, None]
        take, keep = torch.sigmoid(gates).chunk(2, dim=-1)
        return take * tokens + keep * average


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 256, 512), torch.randn(8, 256, 1024)]
