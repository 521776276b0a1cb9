"""Where the decoder of a U-Net meets its encoder again (Ronneberger et al. 2015)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


# kernel-assistant: inputs=(torch.randn(2, 64, 60, 60), torch.randn(2, 64, 124, 124))
class UNetMerge(nn.Module):
    """The coarse features at twice their size, padded to those of the skip connection and put in front of them.

    ``(batch, a, h, w)`` and ``(batch, b, height, width)`` → ``(batch, a + b, height, width)``.
    """

    def __init__(self, slope: float = 0.1) -> None:
        super().__init__()
        self.slope = slope

    def forward(self, coarse: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        fine = F.interpolate(F.leaky_relu(coarse, self.slope), scale_factor=2, mode="nearest")
        rows, columns = skip.shape[-2] - fine.shape[-2], skip.shape[-1] - fine.shape[-1]
        fine = F.pad(fine, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        return torch.cat([fine, F.leaky_relu(skip, self.slope)], dim=1)
