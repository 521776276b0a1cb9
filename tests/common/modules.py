"""Users' files that several tests need."""

from __future__ import annotations

#: The smallest module that a kernel can serve: two element-wise operators.
POINTWISE = """
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


def get_inputs():
    return [torch.randn(64, 128)]
"""

#: Some more of them, so that a search has something to find.
GATE = """import torch
from torch import nn


class Gate(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x) * torch.tanh(x) + torch.relu(x) * 0.5


def get_inputs():
    return [torch.randn(256, 1024)]
"""

#: So many of them that a kernel of one thread is much faster than eager PyTorch.
CHAIN = '''"""A chain of small operators."""

from __future__ import annotations

import torch


class Chain(torch.nn.Module):
    def __init__(self, steps=12, scale=1.25):
        super().__init__()
        self.steps, self.scale = steps, scale

    def forward(self, x):
        for _ in range(self.steps):
            x = torch.relu(x * self.scale - 0.5) - 0.125
        return x


def get_inputs():
    return [torch.randn(32, 512)]
'''
