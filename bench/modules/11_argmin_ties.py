"""Argmin over small integers that tie, of a stepped value."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.argmin(1)


def get_inputs():
    return [torch.randint(0, 9, (512, 64, 256)).float()[:, :, ::2]]
