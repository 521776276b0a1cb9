"""Floor division and remainder of int64, both signs."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a // b + a % b, torch.fmod(a, b)


def get_inputs():
    return [
        torch.randint(-99999, 99999, (1024, 1024)),
        torch.randint(1, 9, (1024, 1024)) * (torch.randint(0, 2, (1024, 1024)) * 2 - 1),
    ]
