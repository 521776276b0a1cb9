"""Modules with an operator that stays PyTorch's on the CPU, as users write them."""

from __future__ import annotations

LINEAR = """
import torch
from torch import nn
import torch.nn.functional as F


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(64, 96), nn.LayerNorm(96), nn.Linear(96, 64)

    def forward(self, x):
        return self.down(self.norm(F.gelu(self.up(x)) * 0.5))


def get_inputs():
    return [torch.randn(6, 5, 64)]
"""

CONV = """
import torch
from torch import nn
import torch.nn.functional as F


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x))) * 2 + 1


def get_inputs():
    return [torch.randn(4, 3, 12, 12)]
"""

ATTENTION = """
import torch
from torch import nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.heads, self.out = nn.LayerNorm(64), nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x):
        rows, steps, width = x.shape
        parts = [part.view(rows, steps, 4, 16).transpose(1, 2) for part in self.heads(self.norm(x)).chunk(3, -1)]
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        return x + F.silu(self.out(mixed.transpose(1, 2).reshape(rows, steps, width)))


def get_inputs():
    return [torch.randn(3, 10, 64)]
"""

HEADS = """
import torch
from torch import nn


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mixed = nn.LayerNorm(64), nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return x + self.mixed(y, y, y, need_weights=False)[0]


def get_inputs():
    return [torch.randn(3, 10, 64)]
"""

LSTM = """
import torch
from torch import nn


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.norm = nn.LSTM(16, 32, batch_first=True), nn.LayerNorm(32)

    def forward(self, x):
        steps, (last, _) = self.lstm(torch.tanh(x) * 2)
        return self.norm(steps) + last.sum(0).unsqueeze(1)


def get_inputs():
    return [torch.randn(3, 5, 16)]
"""

#: Many steps both ways: a call takes long, and nearly all of it is PyTorch's.
BOTH_WAYS = """
import torch
from torch import nn


class BothWays(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(32, 64, num_layers=4, batch_first=True, bidirectional=True)
        self.out = nn.Linear(128, 10)

    def forward(self, x):
        return torch.tanh(self.out(self.lstm(x)[0][:, -1]))


def get_inputs():
    return [torch.randn(4, 256, 32)]
"""

#: An operator that the file itself registers.
LIBRARY = """
import torch
from torch import nn


@torch.library.custom_op("residual_modules::turned", mutates_args=())
def turned(x: torch.Tensor, angles: torch.Tensor, half: bool = False) -> torch.Tensor:
    return torch.cat((x[..., 8:] * angles.cos(), x[..., :8] * angles.sin()), -1) * (0.5 if half else 1.0)


@turned.register_fake
def _(x, angles, half=False):
    return torch.empty_like(x)


def turn_back(context, gradient):
    return torch.ones_like(gradient), torch.zeros(8), None


turned.register_autograd(turn_back)


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.angles = nn.LayerNorm(16), nn.Parameter(torch.rand(8))

    def forward(self, x):
        return torch.sigmoid(turned(self.norm(x), self.angles, half=True)) + x


def get_inputs():
    return [torch.randn(4, 6, 16)]
"""

#: Class name → its file, and the operators that stay.
MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "Linear": (LINEAR, ("linear", "linear")),
    "Conv": (CONV, ("conv2d",)),
    "Attention": (ATTENTION, ("linear", "scaled_dot_product_attention", "linear")),
    "Heads": (HEADS, ("linear", "scaled_dot_product_attention", "linear")),
    "Recurrent": (LSTM, ("lstm.input",)),
    "Turned": (LIBRARY, ("residual_modules::turned",)),
}
