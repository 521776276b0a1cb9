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

from tests.generator.harness import Computed, Function, Tensors

Case = tuple[nn.Module, Tensors]


def spread(*shape: int) -> torch.Tensor:
    """Numbers with a deviation of three, the same ones in every run."""
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


def _gated_scan(x: torch.Tensor, norm: nn.Module, gate: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(norm(x) * torch.sigmoid(gate), -1)


def _exclusive(x: torch.Tensor) -> torch.Tensor:
    start = torch.zeros_like(x.select(1, 0).unsqueeze(1))
    return torch.cat((start, torch.cumsum(x.narrow(1, 0, x.size(1) - 1), 1)), 1)


def _swiglu(x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return F.silu(left) * right


def case(function: Callable[..., Any], *args: torch.Tensor) -> Case:
    return Function(function), args


POINTWISE: dict[str, Case] = {
    "activations": case(_activations, spread(7, 333)),
    "functions": case(_functions, spread(5, 77)),
    "arithmetic": case(_arithmetic, spread(6, 129), spread(6, 130)[:, 1:].contiguous()),
    "integers": case(lambda x: ((x + 1) * 2 - x % 3, x // 4, x > 2), torch.arange(-33, 99).reshape(4, 33)),
    "diagonal": case(lambda a, b: a.unsqueeze(1) * b, spread(5), spread(5, 77)),
    "short rows": case(lambda x, b: x + b, spread(100, 3), spread(3)),
    "permuted": case(lambda x: x.permute(0, 2, 1).relu(), spread(3, 37, 65)),
    "strided": case(torch.relu, spread(33, 5).t()),
    "half": case(lambda x, y: F.gelu(x) * y, spread(5, 334).bfloat16(), spread(5, 334).bfloat16()),
    "batch norm": (_affine(nn.BatchNorm2d(8)), (spread(3, 8, 5, 7),)),
    "prelu": (_affine(nn.PReLU(8)), (spread(3, 8, 5, 7),)),
    "gated halves": case(lambda x: (_swiglu(x), F.glu(x, -1)), spread(7, 334)),
    "positions": case(lambda x: x / torch.arange(1, 34, dtype=torch.float32), spread(7, 33)),
    "iota": case(lambda x: torch.where(torch.arange(x.size(1)) < 5, x, 0.0), spread(7, 33)),
    "one element": case(lambda x: F.softmax(x, 1), spread(3, 1)),
    "size": case(lambda x: x / x.size(0), spread(7, 33)),
}
ROWS: dict[str, Case] = {
    "softmax": case(lambda x: (F.softmax(x, 1), F.log_softmax(x, -1), F.softmin(x, 1)), spread(7, 333)),
    "softmax wide": case(lambda x: F.softmax(x, 1), spread(3, 5000)),
    "softmax even": case(lambda x: F.softmax(x, 1), spread(5, 2048)),
    "softmax half": case(lambda x: F.softmax(x, 1), spread(5, 336).bfloat16()),
    "softmax double": case(lambda x: F.softmax(x, 1), spread(5, 33).double()),
    "layer norm": (_affine(nn.LayerNorm((37, 13))), (spread(3, 37, 13),)),
    "layer norm even": (_affine(nn.LayerNorm(1024)), (spread(6, 1024) + 50,)),
    "rms norm": (_affine(nn.RMSNorm(333)), (spread(7, 333),)),
    "rms norm half": (_affine(nn.RMSNorm(333)).bfloat16(), ((spread(5, 333) * 1e-3).bfloat16(),)),
    "group norm": (_affine(nn.GroupNorm(4, 8)), (spread(3, 8, 9, 11),)),
    "instance norm": (_affine(nn.InstanceNorm2d(8, affine=True)), (spread(3, 8, 5, 7),)),
    "norms": case(
        lambda x: (x / x.norm(p=2, dim=1, keepdim=True), x / x.abs().mean(1, keepdim=True), F.normalize(x, dim=1)),
        spread(7, 333),
    ),
    "statistics": case(
        lambda x: (
            x.var(1),
            x.std(1, unbiased=False),
            *torch.var_mean(x, 1),
            torch.logsumexp(x, 1),
            x.amax(1),
            x.sum(1),
        ),
        spread(7, 333),
    ),
    "extremes": case(lambda x: (x.max(1)[0], x.min(1)[0], (x > 0).sum(1), x.sigmoid().prod(1)), spread(7, 61)),
    "everything": case(lambda x: (x.sum(), x.mean(), x.max()), spread(3, 70, 101)),
    "whole norm": case(lambda x: x / torch.norm(x, p="fro"), spread(4, 50, 61)),
    "apart": case(lambda x: x.sum((0, 2)), spread(5, 7, 33)),
    "apart long": case(lambda x: x.sigmoid() / x.sigmoid().sum((1, 3), keepdim=True), spread(3, 4, 5, 201)),
    "group norm long": (_affine(nn.GroupNorm(4, 8)), (spread(3, 8, 13, 11),)),
    "cosine": case(lambda x, y: F.cosine_similarity(x, y, dim=-1), spread(7, 33), spread(7, 34)[:, 1:].contiguous()),
    "loss": case(F.mse_loss, spread(6, 501), spread(6, 502)[:, 1:].contiguous()),
    "viewed": case(lambda x: F.softmax(x.view(x.size(0), -1), 1).view_as(x).transpose(0, 1), spread(3, 7, 29)),
}
COLS: dict[str, Case] = {
    "sum": case(lambda x: (x.sum(1, keepdim=True), x.mean(1, keepdim=True)), spread(3, 137, 65)),
    "maximum": case(lambda x: torch.max(x, dim=1)[0], spread(3, 37, 129)),
    "first": case(lambda x: x.sum(0), spread(37, 129)),
    "softmax": case(lambda x: F.softmax(x, 1), spread(3, 37, 129)),
    "rms": case(lambda x: x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-5), spread(3, 16, 8, 12)),
}
SCANS: dict[str, Case] = {
    "sum": case(lambda x: torch.cumsum(x, 1), spread(5, 3001)),
    "product": case(lambda x: torch.cumprod(x, 1), torch.rand(5, 301) + 0.5),
    "reverse": case(lambda x: torch.cumsum(x.flip(1), 1).flip(1), spread(5, 3004)),
    "reverse odd": case(lambda x: torch.cumsum(x.flip(1), 1).flip(1), spread(5, 301)),
    "exclusive": case(_exclusive, spread(5, 3001)),
    "masked": case(lambda x, m: torch.cumsum(x * m, 1), spread(5, 2048), spread(5, 2048) > 0),
    "normed": (Computed(_gated_scan, nn.RMSNorm(1024), torch.linspace(-1, 1, 1024)), (spread(6, 1024),)),
    "middle": case(lambda x: torch.cumsum(x, 1), spread(3, 37, 129)),
    "integers": case(lambda x: torch.cumsum(x, 1), torch.arange(-500, 505).reshape(5, 201)),
    "greatest": case(lambda x: torch.cummax(x, 1).values - x, spread(5, 3001)),
    "least": case(lambda x: torch.cummin(x.abs(), 1).values, spread(3, 37, 129)),
    "greatest with positions": case(lambda x: torch.cummax(x.round(), 1), spread(5, 3001)),
    "positions of the least": case(lambda x: torch.cummin(x.round().int(), 1).indices, spread(3, 37, 129)),
}
FAMILIES = {"pointwise": POINTWISE, "rows": ROWS, "cols": COLS, "scan": SCANS}
CASES = {f"{family}: {name}": case for family, cases in FAMILIES.items() for name, case in cases.items()}
