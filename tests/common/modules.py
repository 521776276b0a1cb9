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
