"""Modules of every kind that the generator can write, small and with odd sizes. Several functions of one input are one
module with many outputs, so that one compile tests them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.generator.harness import Function, Tensors

Case = tuple[nn.Module, Tensors]


def _spread(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))) * 3


def _affine(model: nn.Module) -> nn.Module:
    """Sets weights and statistics to values other than 0 and 1."""
    generator = torch.Generator().manual_seed(1)
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dtype.is_floating_point:
            tensor.data = torch.rand(tensor.shape, generator=generator) + 0.5
    return model


def _activations(x: torch.Tensor) -> Any:
    names = (
        "relu relu6 leaky_relu elu selu celu gelu silu mish softplus softsign hardtanh hardsigmoid hardswish "
        "logsigmoid tanhshrink hardshrink softshrink sigmoid tanh"
    )
    return (*(getattr(F, name)(x) for name in names.split()), F.gelu(x, approximate="tanh"), F.threshold(x, 0.1, 20.0))


def _functions(x: torch.Tensor) -> Any:
    anything = "exp exp2 expm1 sin cos tan atan sinh cosh erf erfc floor ceil round trunc sign frac abs neg square"
    positive = "log log1p log2 log10 sqrt rsqrt reciprocal"
    found = [getattr(torch, name)(x) for name in anything.split()]
    return (*found, *(getattr(torch, name)(x.abs() + 0.01) for name in positive.split()), torch.asin(x.sigmoid()))


def _arithmetic(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (
        torch.rsub(x, 1.0) + torch.sub(x, y, alpha=2) + torch.add(x, 1, alpha=3),
        x / (y.abs() + 0.5) - x * 3.14,
        torch.where(x > 0, x, 0.5) + x.clamp(0, 1) + x.clamp_min(0.1),
        torch.lerp(x, y, 0.25) + torch.addcmul(x, x, y, value=2.0) + torch.addcdiv(x, x, y.abs() + 1),
        x.masked_fill(x > 1, -5.0) + torch.maximum(x, y) - torch.minimum(x, y),
        x.remainder(0.7) + x.fmod(0.7) + x // 0.3,
        x.abs() ** y + 2**x + x**2 + x**3 + x.abs() ** 0.5,
        ((x > 0) & (y < 0.5)) | ~(x >= y),
        torch.logical_xor(x > 0, y > 0),
        x.to(torch.float16).float() + x.to(torch.int32),
        x.bfloat16(),
        0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))),
    )


class _GatedScan(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(size)
        self.gate = nn.Parameter(torch.linspace(-1, 1, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(self.norm(x) * torch.sigmoid(self.gate), -1)


def _exclusive(x: torch.Tensor) -> torch.Tensor:
    start = torch.zeros_like(x.select(1, 0).unsqueeze(1))
    return torch.cat((start, torch.cumsum(x.narrow(1, 0, x.size(1) - 1), 1)), 1)


def _swiglu(x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return F.silu(left) * right


def _case(function: Callable[..., Any], *args: torch.Tensor) -> Case:
    return Function(function), args


POINTWISE: dict[str, Case] = {
    "activations": _case(_activations, _spread(7, 333)),
    "functions": _case(_functions, _spread(5, 77)),
    "arithmetic": _case(_arithmetic, _spread(6, 129), _spread(6, 130)[:, 1:].contiguous()),
    "integers": _case(lambda x: ((x + 1) * 2 - x % 3, x // 4, x > 2), torch.arange(-33, 99).reshape(4, 33)),
    "diagonal": _case(lambda a, b: a.unsqueeze(1) * b, _spread(5), _spread(5, 77)),
    "short rows": _case(lambda x, b: x + b, _spread(100, 3), _spread(3)),
    "permuted": _case(lambda x: x.permute(0, 2, 1).relu(), _spread(3, 37, 65)),
    "strided": _case(torch.relu, _spread(33, 5).t()),
    "half": _case(lambda x, y: F.gelu(x) * y, _spread(5, 334).bfloat16(), _spread(5, 334).bfloat16()),
    "batch norm": (_affine(nn.BatchNorm2d(8)), (_spread(3, 8, 5, 7),)),
    "prelu": (_affine(nn.PReLU(8)), (_spread(3, 8, 5, 7),)),
    "gated halves": _case(lambda x: (_swiglu(x), F.glu(x, -1)), _spread(7, 334)),
    "positions": _case(lambda x: x / torch.arange(1, 34, dtype=torch.float32), _spread(7, 33)),
    "iota": _case(lambda x: torch.where(torch.arange(x.size(1)) < 5, x, 0.0), _spread(7, 33)),
    "one element": _case(lambda x: F.softmax(x, 1), _spread(3, 1)),
    "size": _case(lambda x: x / x.size(0), _spread(7, 33)),
}
ROWS: dict[str, Case] = {
    "softmax": _case(lambda x: (F.softmax(x, 1), F.log_softmax(x, -1), F.softmin(x, 1)), _spread(7, 333)),
    "softmax wide": _case(lambda x: F.softmax(x, 1), _spread(3, 5000)),
    "softmax even": _case(lambda x: F.softmax(x, 1), _spread(5, 2048)),
    "softmax half": _case(lambda x: F.softmax(x, 1), _spread(5, 336).bfloat16()),
    "softmax double": _case(lambda x: F.softmax(x, 1), _spread(5, 33).double()),
    "layer norm": (_affine(nn.LayerNorm((37, 13))), (_spread(3, 37, 13),)),
    "layer norm even": (_affine(nn.LayerNorm(1024)), (_spread(6, 1024) + 50,)),
    "rms norm": (_affine(nn.RMSNorm(333)), (_spread(7, 333),)),
    "rms norm half": (_affine(nn.RMSNorm(333)).bfloat16(), ((_spread(5, 333) * 1e-3).bfloat16(),)),
    "group norm": (_affine(nn.GroupNorm(4, 8)), (_spread(3, 8, 9, 11),)),
    "instance norm": (_affine(nn.InstanceNorm2d(8, affine=True)), (_spread(3, 8, 5, 7),)),
    "norms": _case(
        lambda x: (x / x.norm(p=2, dim=1, keepdim=True), x / x.abs().mean(1, keepdim=True), F.normalize(x, dim=1)),
        _spread(7, 333),
    ),
    "statistics": _case(
        lambda x: (
            x.var(1),
            x.std(1, unbiased=False),
            *torch.var_mean(x, 1),
            torch.logsumexp(x, 1),
            x.amax(1),
            x.sum(1),
        ),
        _spread(7, 333),
    ),
    "extremes": _case(lambda x: (x.max(1)[0], x.min(1)[0], (x > 0).sum(1), x.sigmoid().prod(1)), _spread(7, 61)),
    "everything": _case(lambda x: (x.sum(), x.mean(), x.max()), _spread(3, 70, 101)),
    "whole norm": _case(lambda x: x / torch.norm(x, p="fro"), _spread(4, 50, 61)),
    "apart": _case(lambda x: x.sum((0, 2)), _spread(5, 7, 33)),
    "apart long": _case(lambda x: x.sigmoid() / x.sigmoid().sum((1, 3), keepdim=True), _spread(3, 4, 5, 201)),
    "group norm long": (_affine(nn.GroupNorm(4, 8)), (_spread(3, 8, 13, 11),)),
    "cosine": _case(lambda x, y: F.cosine_similarity(x, y, dim=-1), _spread(7, 33), _spread(7, 34)[:, 1:].contiguous()),
    "loss": _case(F.mse_loss, _spread(6, 501), _spread(6, 502)[:, 1:].contiguous()),
    "viewed": _case(lambda x: F.softmax(x.view(x.size(0), -1), 1).view_as(x).transpose(0, 1), _spread(3, 7, 29)),
}
COLS: dict[str, Case] = {
    "sum": _case(lambda x: (x.sum(1, keepdim=True), x.mean(1, keepdim=True)), _spread(3, 137, 65)),
    "maximum": _case(lambda x: torch.max(x, dim=1)[0], _spread(3, 37, 129)),
    "first": _case(lambda x: x.sum(0), _spread(37, 129)),
    "softmax": _case(lambda x: F.softmax(x, 1), _spread(3, 37, 129)),
    "rms": _case(lambda x: x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-5), _spread(3, 16, 8, 12)),
}
SCANS: dict[str, Case] = {
    "sum": _case(lambda x: torch.cumsum(x, 1), _spread(5, 3001)),
    "product": _case(lambda x: torch.cumprod(x, 1), torch.rand(5, 301) + 0.5),
    "reverse": _case(lambda x: torch.cumsum(x.flip(1), 1).flip(1), _spread(5, 3004)),
    "reverse odd": _case(lambda x: torch.cumsum(x.flip(1), 1).flip(1), _spread(5, 301)),
    "exclusive": _case(_exclusive, _spread(5, 3001)),
    "masked": _case(lambda x, m: torch.cumsum(x * m, 1), _spread(5, 2048), _spread(5, 2048) > 0),
    "normed": (_GatedScan(1024), (_spread(6, 1024),)),
    "middle": _case(lambda x: torch.cumsum(x, 1), _spread(3, 37, 129)),
    "integers": _case(lambda x: torch.cumsum(x, 1), torch.arange(-500, 505).reshape(5, 201)),
    "greatest": _case(lambda x: torch.cummax(x, 1).values - x, _spread(5, 3001)),
    "least": _case(lambda x: torch.cummin(x.abs(), 1).values, _spread(3, 37, 129)),
    "greatest with positions": _case(lambda x: torch.cummax(x.round(), 1), _spread(5, 3001)),
    "positions of the least": _case(lambda x: torch.cummin(x.round().int(), 1).indices, _spread(3, 37, 129)),
}
FAMILIES = {"pointwise": POINTWISE, "rows": ROWS, "cols": COLS, "scan": SCANS}
CASES = {f"{family}: {name}": case for family, cases in FAMILIES.items() for name, case in cases.items()}
