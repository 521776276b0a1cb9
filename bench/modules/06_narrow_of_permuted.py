"""Narrow and diagonal of a permuted value."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        turned = x.permute(2, 0, 1).narrow(0, 16, 96)
        return turned.diagonal(dim1=1, dim2=2).tanh()


def get_inputs():
    return [torch.randn(512, 512, 128)]
