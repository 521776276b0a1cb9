"""Modules whose whole graph is library launches, small and with odd sizes; the second item is the number of
launches.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.generator.harness import Function, Tensors

Case = tuple[nn.Module, int, Tensors]


def _spread(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


class _Residual(nn.Module):
    """relu(x · w + b + x): a bias, a residual and an activation behind one product."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.inner(x) + x)


class _Bottleneck(nn.Module):
    """act(conv(x) + b + side): what is added has the shape of the result."""

    def __init__(self, inner: nn.Module, activated: bool = True) -> None:
        super().__init__()
        self.inner, self.activated = inner, activated

    def forward(self, x: torch.Tensor, side: torch.Tensor) -> torch.Tensor:
        found = self.inner(x) + side
        return F.relu(found) if self.activated else found


class _BiasAfter(nn.Module):
    """A convolution whose bias is a parameter of its own, of shape (channels, 1, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(3, 8, 3, bias=False)
        self.shift = nn.Parameter(_spread(8, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.inner(x) + self.shift)


def _channels_last(module: nn.Module, *args: torch.Tensor) -> tuple[nn.Module, int, Tensors]:
    layout = torch.channels_last
    return module.to(memory_format=layout), 1, tuple(arg.contiguous(memory_format=layout) for arg in args)  # type: ignore[call-overload]


def products() -> dict[str, Case]:
    """The modules are new each time, because tests change dtypes."""
    return {
        "linear": (nn.Linear(24, 40), 1, (_spread(17, 24),)),
        "linear of three dimensions": (nn.Linear(24, 40, bias=False), 1, (_spread(5, 7, 24),)),
        "linear, relu": (nn.Sequential(nn.Linear(24, 40), nn.ReLU()), 1, (_spread(17, 24),)),
        "linear, tanh gelu, linear": (
            nn.Sequential(nn.Linear(24, 40), nn.GELU(approximate="tanh"), nn.Linear(40, 16)),
            *(2, (_spread(17, 24),)),
        ),
        "residual": (_Residual(24), 1, (_spread(17, 24),)),
        "mm": (Function(torch.mm), 1, (_spread(9, 16), _spread(16, 24))),
        "mm, left transposed": (Function(lambda a, b: a.t() @ b), 1, (_spread(16, 8), _spread(16, 24))),
        "mm, both transposed": (Function(lambda a, b: a.t() @ b.t()), 1, (_spread(16, 8), _spread(24, 16))),
        "transposed result": (
            Function(lambda a, b: torch.einsum("km,kn->nm", a, b)),
            *(1, (_spread(16, 8), _spread(16, 24))),
        ),
        "vector": (Function(torch.mv), 1, (_spread(9, 16), _spread(16))),
        "addmm": (
            Function(lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0)),
            *(1, (_spread(9, 24), _spread(9, 16), _spread(16, 24))),
        ),
        "bmm": (Function(torch.bmm), 1, (_spread(5, 9, 16), _spread(5, 16, 24))),
        "bmm, right transposed": (
            Function(lambda a, b: a @ b.transpose(-1, -2)),
            *(1, (_spread(2, 3, 9, 16), _spread(2, 3, 24, 16))),
        ),
        "baddbmm": (
            Function(lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2.0)),
            *(1, (_spread(5, 9, 24), _spread(5, 9, 16), _spread(5, 16, 24))),
        ),
        "matrix for a batch": (Function(torch.matmul), 1, (_spread(5, 9, 16), _spread(16, 24))),
        "batch for a matrix": (Function(torch.matmul), 1, (_spread(9, 16), _spread(5, 16, 24))),
        "batch of one": (Function(torch.matmul), 1, (_spread(3, 1, 9, 16), _spread(1, 1, 16, 24))),
        "einsum": (
            Function(lambda a, b: torch.einsum("bik,bjk->bij", a, b)),
            *(1, (_spread(5, 9, 16), _spread(5, 8, 16))),
        ),
        "einsum over two dimensions": (
            Function(lambda a, b: torch.einsum("bikl,jkl->bij", a, b)),
            *(1, (_spread(5, 9, 4, 6), _spread(8, 4, 6))),
        ),
        "expanded": (
            Function(lambda a, b: torch.bmm(a, b.expand(5, 16, 24))),
            *(1, (_spread(5, 9, 16), _spread(1, 16, 24))),
        ),
    }


def convolutions() -> dict[str, Case]:
    """The modules are new each time, because tests change dtypes."""
    picture, volume, line = _spread(3, 8, 13, 11), _spread(2, 4, 7, 9, 8), _spread(3, 8, 21)
    return {
        "conv1d": (nn.Conv1d(8, 16, 3, padding=1), 1, (line,)),
        "conv1d, dilated, relu": (nn.Sequential(nn.Conv1d(8, 16, 3, dilation=2, stride=2), nn.ReLU()), 1, (line,)),
        "conv2d": (nn.Conv2d(8, 16, 3, bias=False), 1, (picture,)),
        "conv2d with bias": (nn.Conv2d(8, 16, (3, 5), stride=(2, 1), padding=(0, 2)), 1, (picture,)),
        "conv2d, bias, relu": (nn.Sequential(nn.Conv2d(8, 16, 3, padding="same"), nn.ReLU()), 1, (picture,)),
        "conv2d, groups": (nn.Conv2d(8, 16, 3, groups=4), 1, (picture,)),
        "conv2d, depthwise": (nn.Conv2d(8, 8, 3, groups=8, padding=1, bias=False), 1, (picture,)),
        "conv2d, dilated": (nn.Conv2d(8, 16, 3, dilation=(2, 3), padding=2), 1, (picture,)),
        "conv2d, bias after": (_BiasAfter(), 1, (_spread(3, 3, 12, 12),)),
        "conv2d, channels last": _channels_last(nn.Conv2d(8, 16, 3), picture),
        "conv2d, channels last, silu": _channels_last(nn.Sequential(nn.Conv2d(8, 16, 1), nn.SiLU()), picture),
        "conv2d, bias, residual, relu": _channels_last(
            _Bottleneck(nn.Conv2d(8, 16, 3, padding=1)), picture, _spread(3, 16, 13, 11)
        ),
        "conv2d, residual": _channels_last(
            _Bottleneck(nn.Conv2d(8, 16, 3, groups=2, bias=False), False), picture, _spread(3, 16, 11, 9)
        ),
        "conv3d": (nn.Conv3d(4, 8, (3, 2, 3), stride=(1, 2, 2)), 1, (volume,)),
        "transposed 1d": (nn.ConvTranspose1d(8, 16, 4, stride=2, padding=1, bias=False), 1, (line,)),
        "transposed 2d": (nn.ConvTranspose2d(8, 16, 3, stride=2, output_padding=1, bias=False), 1, (picture,)),
        "transposed 2d, groups": (nn.ConvTranspose2d(8, 16, 3, groups=2, dilation=2, bias=False), 1, (picture,)),
        "transposed 3d": (nn.ConvTranspose3d(4, 8, 3, stride=(2, 1, 2), padding=1, bias=False), 1, (volume,)),
        "two": (nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.ConvTranspose2d(16, 8, 3, bias=False)), 2, (picture,)),
    }
