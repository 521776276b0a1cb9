"""A small module for each ability of elementwise kernels, of row kernels and of several kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.teacher.units import Task, Tensors, task

HALVES = (torch.bfloat16, torch.float16)


def _normal(*shape: int) -> Callable[[int], Tensors]:
    return lambda size: (torch.randn(size, *shape),)


def _two(*shape: int) -> Callable[[int], Tensors]:
    return lambda size: (torch.randn(size, *shape), torch.randn(size, *shape))


def _affine(model: nn.Module) -> nn.Module:
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            tensor.data = torch.rand(tensor.shape) + 0.5
    return model


class _Channels(nn.Module):
    """Weights for each channel, a gate for each example, and one number for all elements."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(5) + 0.5)
        self.shift = nn.Parameter(torch.rand(()) + 0.5)

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return F.gelu(x * self.scale.view(1, -1, 1, 1) + self.shift) * gate.sigmoid()


class _Residual(nn.Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + y
        return self.norm(total), total


def _softened(x: torch.Tensor) -> torch.Tensor:
    scores = torch.softmax(x * 0.125, -1)
    return scores - scores.mean()


def _lengths(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.nn.functional.cosine_similarity(x, y, dim=1), x.var(-1), (x > 2).any(-1)


def _several(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x.clamp(-0.7, 0.7) * y, torch.where(x > y, x, 0.3), x >= y


def _masked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Masks scores as attention does."""
    return torch.softmax(x.masked_fill(y > 0, float("-inf")), -1)


def _rms(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def _pieces(x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, dim=-1)
    return left * F.silu(right)


def _channel_norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    apart = x - x.mean(1, keepdim=True)
    return apart * torch.rsqrt(apart.pow(2).mean(1, keepdim=True) + 1e-5) * scale


def _classes(size: int) -> Tensors:
    return torch.randn(size, 37), torch.randint(0, 37, (size,))


def tasks() -> Iterator[Task]:
    yield task("gate", lambda x, y: x * torch.sigmoid(y) - 0.25, _two(33))
    yield task("several", _several, _two(7, 5))
    yield task("channels", _affine(_Channels()), lambda b: (torch.randn(b, 5, 3, 7), torch.randn(b, 1, 1, 1)))
    yield task("pieces", _pieces, _normal(3, 26))
    yield task("bias", _affine(nn.BatchNorm1d(19)), _normal(19))
    yield task("planes", _affine(nn.BatchNorm2d(6)), _normal(6, 5, 3))
    yield task("spread", lambda x, y: x + y, lambda b: (torch.randn(b, 1, 9), torch.randn(b, 4, 1)))
    yield task("rms", _rms, _normal(130))
    yield task("residual", _affine(_Residual(1100)), _two(1100))
    yield task("short", _affine(nn.LayerNorm(24)), _normal(3, 24))
    yield task("long", lambda x: torch.log_softmax(x, -1), _normal(40001))
    yield task("long_norm", _affine(nn.LayerNorm(33000)), _normal(33000))
    yield task("softmax", lambda x: torch.softmax(x, -1), _normal(257))
    yield task("masked", _masked, _two(129))
    yield task("unbounded", lambda x: x.clamp(float("-inf"), 0.5) + x.clamp(-0.5, float("inf")), _normal(33))
    yield task("sums", lambda x: torch.logsumexp(x, -1) + x.amax(-1), _normal(1025))
    yield task("lengths", _lengths, _two(131))
    yield task("place", lambda x: (x.argmax(-1), x.min(-1)[1]), _normal(77))
    yield task("groups", _affine(nn.GroupNorm(3, 12)), _normal(12, 5, 3))
    yield task("instance", _affine(nn.InstanceNorm2d(4, affine=True)), _normal(4, 9, 7))
    yield task("channel_softmax", lambda x: torch.log_softmax(x * 2, 1), _normal(17, 3, 5))
    yield task("channel_norm", _channel_norm, lambda b: (torch.randn(b, 70, 11), torch.randn(70, 1)))
    yield task("cut", lambda x: F.gelu(x)[:, :7], _normal(11))
    yield task("counted", lambda x: (x > 0.1).sum(-1), _normal(70))
    yield task("classes", nn.CrossEntropyLoss(), _classes)
    yield task("smooth", nn.CrossEntropyLoss(label_smoothing=0.1), _classes)
    yield task("squares", nn.MSELoss(), _two(3, 70))
    yield task("softened", _softened, _normal(65))
    yield task("turned_across", lambda x: torch.flip(x / (x * x).mean(1, keepdim=True).sqrt(), [2]), _normal(12, 33))
    for dtype in HALVES:
        name = str(dtype).rpartition(".")[2]
        yield task(f"gate_{name}", lambda x, y: x * torch.sigmoid(y) - 0.25, _two(33), dtype)
        yield task(
            f"channels_{name}",
            _affine(_Channels()),
            lambda b: (torch.randn(b, 5, 3, 7), torch.randn(b, 1, 1, 1)),
            dtype,
        )
        yield task(f"residual_{name}", _affine(_Residual(300)), _two(300), dtype)
        yield task(f"softmax_{name}", lambda x: torch.softmax(x, -1), _normal(1201), dtype)
