"""Normalisation over channels for images in NCHW layout."""

from __future__ import annotations

import torch
from torch import nn


class ChannelRMSNorm(nn.Module):
    """RMS norm over ``dim=1``, one learned weight for each channel. ``(batch, channels, height, width)`` in and out."""

    def __init__(self, channels: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        mean_square = image.square().mean(dim=1, keepdim=True)
        return image * torch.rsqrt(mean_square + self.eps) * self.weight[:, None, None]
