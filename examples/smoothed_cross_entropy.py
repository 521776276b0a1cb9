"""The validation loss of a translation model: label smoothing, padding left out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

PADDING = 0


class SmoothedCrossEntropy(nn.Module):
    """Args of ``forward``:
    logits: scores of the vocabulary, ``(tokens, vocabulary)``.
    target: the right words, ``(tokens,)``; ``PADDING`` does not count.
    """

    def __init__(self, smoothing: float = 0.1) -> None:
        super().__init__()
        self.smoothing = smoothing

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, target, ignore_index=PADDING, label_smoothing=self.smoothing)


def get_inputs() -> list[torch.Tensor]:
    return [4 * torch.randn(1536, 8192), torch.randint(0, 8192, (1536,))]
