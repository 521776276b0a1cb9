"""Nested inputs, keywords, an optional None, nested outputs, a tied weight, a buffer and a non-persistent one."""

import torch
from torch import nn


# kernel-assistant: inputs=((torch.randn(6, 4, 8), torch.randn(6, 8)), None) kwargs={
#     "scale": 2.0, "bias": torch.randn(8)}
class Structured(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.register_buffer("shift", torch.arange(8.0))
        self.register_buffer("gain", torch.full((8,), 0.5), persistent=False)

    def forward(self, pair, mask=None, bias=None, scale=1.0):
        x, y = pair
        h = self.second(torch.relu(self.first(x))) + self.shift
        if mask is not None:
            h = h.masked_fill(mask, 0.0)
        values, places = (h * self.gain + y[:, None] * scale).max(dim=1)
        return {"sum": h.sum(-1), "best": (values + bias, places), "nothing": None}
