"""Modules that cannot be judged, each for a reason of its own; the tests name the reason."""

import torch
from torch import nn
from torch.nn import functional as F


class TwoArguments(nn.Module):
    def __init__(self, width, height):
        super().__init__()

    def forward(self, x):
        return x


class RaisesInInit(nn.Module):
    def __init__(self):
        super().__init__()
        raise ValueError("the width must be even\nand this line is not shown")

    def forward(self, x):
        return x


class ExitsInInit(nn.Module):
    def __init__(self):
        raise SystemExit(3)

    def forward(self, x):
        return x


class HugeInit(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1_000_000, 10_000_000)

    def forward(self, x):
        return self.linear(x)


class WrongSizes(nn.Module):
    def forward(self, x):
        return x @ x


class HugeInside(nn.Module):
    def forward(self, x):
        return (x[:, :, None, None] * torch.ones(1, 1, 1_000_000, 10_000)).sum((-1, -2))


class WantsMore(nn.Module):
    def forward(self, x, y):
        return x + y


class AlwaysDrops(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.5)


class DrawsNoise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


class CountsCalls(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


class WritesInput(nn.Module):
    def forward(self, x):
        return x.mul_(2)


class WritesInputData(nn.Module):
    def forward(self, x):
        y = x * 2
        x.data.zero_()
        return y


class WritesParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.total = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        self.total += 1
        return x * 2


class ReplacesBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        self.total = self.total + 1
        return x * 2


class ReturnsNumber(nn.Module):
    def forward(self, x):
        return x, x.shape[0]


class ReturnsNothing(nn.Module):
    def forward(self, x):
        self.last = x


class ReturnsComplex(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x)


class ComplexInside(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x).real


class BranchesOnValues(nn.Module):
    def forward(self, x):
        return x * 2 if float(x.sum()) > 0 else x - 1


class ValueSizes(nn.Module):
    def forward(self, x):
        return x[x > 0] * 2


NotAModule = 3


TABLE = torch.linspace(0, 1, 600).reshape(100, 6)


class ReadsTable(nn.Module):
    def forward(self, x):
        return x + TABLE[:4]


SCALE = torch.tensor(2.0)


class ReadsScale(nn.Module):
    def forward(self, x):
        return x * SCALE
