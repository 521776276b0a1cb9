"""Texts of small programs."""

from __future__ import annotations

SCRIPT = """
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x, mask=None, *, scale=1.0):
        y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.weight * scale
        return {"out": y} if mask is None else (y, mask)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.norm = Norm(64, eps=1e-5)
        self.rest = nn.Sequential(nn.Linear(64, 64), nn.GELU())

    def forward(self, x):
        return self.norm(self.rest(self.first(x)), scale=2.0)["out"]


if __name__ == "__main__":
    torch.manual_seed(3)
    net = Net().eval()
    with torch.no_grad():
        for rows in (8, 8, 16):
            y = net(torch.randn(rows, 64))
    print(f"{float(y.double().sum()):.12f}", torch.rand(1).item())
"""

CONFIG = """
from dataclasses import dataclass

@dataclass
class Config:
    width: int = 64
    eps: float = 1e-5
"""

MODEL = """
from __future__ import annotations

import torch
from torch import nn

from .config import Config

class Gate(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.rand(config.width))
        self.register_buffer("shift", torch.rand(config.width))

    def forward(self, x, state=None, *, extras):
        x = torch.sigmoid(x * self.weight + self.shift + self.config.eps)
        return {"out": x.masked_fill(~extras["masks"][0], 0.0), "more": (x.relu(), state)}

class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate = Gate(config)
        self.encode = nn.Linear(config.width, config.width)
        self.decode = nn.Linear(config.width, config.width)
        self.decode.weight = self.encode.weight

    def forward(self, x, mask):
        return self.decode(self.gate(self.encode(x), extras={"masks": (mask, 3)})["out"])
"""

MAIN = """
import sys

import torch

from .config import Config
from .model import Model

model = Model(Config()).eval()
with torch.no_grad():
    for _ in range(4):
        model(torch.rand(32, 64), torch.rand(32, 64) > 0.5)
print("said", sys.argv[1:])
sys.exit(7)
"""


def package(write):
    """A package with relative imports, run by `-m`; it exits with 7."""
    write("pkg/__init__.py", "")
    write("pkg/config.py", CONFIG)
    write("pkg/model.py", MODEL)
    write("pkg/__main__.py", MAIN)


def class_of(recording, name):
    """The only recorded class with this name."""
    (found,) = [cls for cls in recording.classes if cls.name == name]
    return found
