"""One class whose inputs come from `get_inputs`, as in KernelBench."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """Scaled softmax over rows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * self.scale, dim=-1)


def get_inputs():
    return [torch.randn(8, 64)]


def get_init_inputs():
    return [64]
