"""bfloat16 outside, float32 inside, as language models do it; a cache that is filled by the first call."""

import torch
from torch import nn


# kernel-assistant: inputs=(torch.randn(4, 10, 16, dtype=torch.bfloat16),)
class HalfNorm(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, dtype=torch.bfloat16))
        self.angles = None

    def forward(self, x):
        if self.angles is None:
            self.angles = torch.arange(x.shape[-1], dtype=torch.float32) / 16
        h = x.to(torch.float32)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * torch.cos(self.angles)
        return self.weight * h.to(x.dtype)
