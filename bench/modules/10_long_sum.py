"""Mean and deviation over 2^18 values."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.mean(-1), x.std(-1)


def get_inputs():
    return [torch.randn(64, 2**18) * 0.01 + 300]
