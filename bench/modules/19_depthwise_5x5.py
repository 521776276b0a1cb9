"""Depthwise 5 x 5 with stride, then an activation."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(96, 96, 5, 2, 2, groups=96)

    def forward(self, x):
        return nn.functional.silu(self.conv(x))


def get_inputs():
    return [torch.randn(16, 96, 56, 56)]
