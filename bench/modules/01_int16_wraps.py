"""Int16 that wraps, in sums and shifts."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        doubled = (x * 257) << 1
        return torch.where(doubled > x, doubled - x, -doubled)


def get_inputs():
    return [torch.randint(-(2**15), 2**15, (64, 128, 512), dtype=torch.int16)]
