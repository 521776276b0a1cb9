"""The tail of a residual block of an image decoder."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .norm import ChannelRMSNorm


class ChannelNormBlock(nn.Module):
    """``skip + silu(norm(image))`` with an RMS norm over the channels of an NCHW image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = ChannelRMSNorm(channels)

    def forward(self, image: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        return skip + F.silu(self.norm(image))
