"""The rest of a ResNet's stem behind its convolution, at inference: batch norm, ReLU and the first pooling."""

from __future__ import annotations

import torch
from torch import nn


class ResNetStem(nn.Module):
    """``(batch, channels, height, width)`` → half the height and width."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.activation = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.pool(self.activation(self.norm(image)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 64, 112, 112)]


def get_init_inputs() -> list[int]:
    return [64]
