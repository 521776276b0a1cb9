"""Modules with an operator that stays PyTorch's on the CPU, as users write them."""

from __future__ import annotations

#: A file with one module: what it is called, what it has, how it computes, the shape of its input.
FILE = """
import torch
from torch import nn
import torch.nn.functional as F


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        {parts}

    def forward(self, x):
        {body}


def get_inputs():
    return [torch.randn({shape})]
"""

LINEAR = FILE.format(
    name="Linear",
    parts="self.up, self.norm, self.down = nn.Linear(64, 96), nn.LayerNorm(96), nn.Linear(96, 64)",
    body="return self.down(self.norm(F.gelu(self.up(x)) * 0.5))",
    shape="6, 5, 64",
)
CONV = FILE.format(
    name="Conv",
    parts="self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)",
    body="return F.relu(self.norm(self.conv(x))) * 2 + 1",
    shape="4, 3, 12, 12",
)
ATTENTION = FILE.format(
    name="Attention",
    parts="self.norm, self.heads, self.out = nn.LayerNorm(64), nn.Linear(64, 192), nn.Linear(64, 64)",
    body="""rows, steps, width = x.shape
        parts = [part.view(rows, steps, 4, 16).transpose(1, 2) for part in self.heads(self.norm(x)).chunk(3, -1)]
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        return x + F.silu(self.out(mixed.transpose(1, 2).reshape(rows, steps, width)))""",
    shape="3, 10, 64",
)
HEADS = FILE.format(
    name="Heads",
    parts="self.norm, self.mixed = nn.LayerNorm(64), nn.MultiheadAttention(64, 4, batch_first=True)",
    body="""y = self.norm(x)
        return x + self.mixed(y, y, y, need_weights=False)[0]""",
    shape="3, 10, 64",
)
LSTM = FILE.format(
    name="Recurrent",
    parts="self.lstm, self.norm = nn.LSTM(16, 32, batch_first=True), nn.LayerNorm(32)",
    body="""steps, (last, _) = self.lstm(torch.tanh(x) * 2)
        return self.norm(steps) + last.sum(0).unsqueeze(1)""",
    shape="3, 5, 16",
)

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
