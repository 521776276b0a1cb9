"""Normalisation over channels of channels-last images."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        return (x - mean) * torch.rsqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)


def get_inputs():
    return [torch.randn(8, 96, 64, 64).to(memory_format=torch.channels_last)]
