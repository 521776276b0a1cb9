"""Files of users that several tests need."""

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
