"""Tasks of windows, scans, layout, gathers and reductions over columns, which need every form of the teacher."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from tests.teacher.units import Task, Tensors, task

Inputs = Callable[[int], Tensors]


def _given(*shapes: tuple[int, ...]) -> Inputs:
    return lambda size: tuple(torch.randn(size, *shape) for shape in shapes)


def _ids(count: int, *shape: int) -> Callable[[int], torch.Tensor]:
    return lambda size: torch.randint(0, count, (size, *shape))


def _halves(x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return F.silu(left) * right


def _both_ways(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[..., :60] * 2, x[..., 60:] + 1


def _rotated(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return x * c + torch.cat([-x[..., 80:], x[..., :80]], -1)


def _reversed(x: torch.Tensor) -> torch.Tensor:
    return torch.flip(torch.cumsum(torch.flip(x, [1]), 1), [1])


@cache
def layout() -> list[Task]:
    one, two, image = _given((48, 160)), _given((48, 160), (48, 160)), _given((8, 10, 160))
    return [
        task("turned", lambda x: torch.relu(x).permute(0, 2, 1).contiguous() * 2, one),
        task("turned_onto", lambda x, y: x.transpose(1, 2).contiguous() + y, _given((48, 161), (161, 48))),
        task("turned_half", lambda x: x.transpose(1, 2).contiguous(), _given((50, 66)), torch.bfloat16),
        task("integers", lambda x: x.mT.contiguous(), lambda size: (torch.randint(0, 99, (size, 33, 65)),)),
        task("last", lambda x: x.permute(0, 2, 3, 1).contiguous(), image),
        task("heads", lambda x: (x.permute(0, 2, 1, 3) * 2).reshape(x.shape[0], 10, -1), image),
        task("flip", lambda x: torch.flip(x, [2]) * torch.sigmoid(x), one),
        task("roll", lambda x: torch.roll(x, (3, -20), (1, 2)), one),
        task("cat", lambda x, y: torch.cat([torch.relu(x), y * 2, x], 1), two),
        task("cat_last", lambda x, y: torch.cat([x, y[..., :5], x, y], -1) * 0.3, two),
        task("cat_half", lambda x, y: torch.cat([x, y], -1), _given((7, 9), (7, 8)), torch.float16),
        task("pad", lambda x: F.pad(x, (1, 2, 3, 0), value=0.25), one),
        task("pad_least", lambda x: F.pad(x, (1, 2), value=float("-inf")).clamp_min(-3.0), one),
        task("pad_cut", lambda x: F.pad(x, (-1, 2, 0, -3)), one),
        task("reflect", lambda x: F.pad(x, (2, 2), mode="reflect"), one),
        task("repeat", lambda x: x.repeat(1, 2, 3), one),
        task("interleave", lambda x: x.repeat_interleave(2, 1), one),
        task("slice", lambda x: x[:, 4:40:2, 8:] + 1, one),
        task("from_the_end", lambda x: x[:, :, -17:] + x[:, -1:, :17] * 2, one),
        task("halves", _halves, one),
        task("glu", lambda x: F.glu(x, 1), one),
        task("two_results", _both_ways, one),
        task("triangle", lambda x: torch.tril(x, 1), _given((48, 48))),
        task("shuffle", lambda x: F.pixel_shuffle(x, 2), image),
        task("unshuffle", lambda x: F.pixel_unshuffle(x, 2), image),
        task("channels", lambda x: F.channel_shuffle(x, 4), image),
        task("rotary", _rotated, lambda size: (torch.randn(size, 8, 10, 160), torch.randn(10, 160))),
    ]


@cache
def gathers() -> list[Task]:
    ids = _ids(48, 32)
    return [
        task("embedding", nn.Sequential(nn.Embedding(48, 256), nn.ReLU()), lambda size: (ids(size),)),
        task("embedding_wide", nn.Embedding(48, 2048), lambda size: (ids(size),), torch.bfloat16),
        task(
            "index_select",
            lambda x, i: torch.index_select(x, 1, i),
            lambda size: (torch.randn(size, 48, 160), torch.randint(0, 48, (9,))),
        ),
        task(
            "gather",
            lambda x, i: torch.gather(x, 2, i) * 2,
            lambda size: (torch.randn(size, 48, 160), torch.randint(0, 160, (size, 48, 7))),
        ),
        task(
            "index",
            lambda x, i: x[:, i],
            lambda size: (torch.randn(size, 48, 160), torch.randint(-48, 48, (9,))),
        ),
        task("one_hot", lambda i: F.one_hot(i, 33), lambda size: (torch.randint(0, 33, (size, 9)),)),
    ]


@cache
def windows() -> list[Task]:
    line, image, volume = _given((8, 301)), _given((8, 37, 41)), _given((4, 9, 11, 13))
    return [
        task("max_2", nn.Sequential(nn.SiLU(), nn.MaxPool2d(3, 2, 1), nn.Tanh()), image),
        task("max_half", nn.MaxPool2d(2), image, torch.float16),
        task("max_ceil", nn.MaxPool2d(3, 2, ceil_mode=True), image),
        task("average", nn.AvgPool2d(3, 1, 1), image),
        task("average_inside", nn.AvgPool2d((3, 2), 2, (1, 0), count_include_pad=False), image),
        task("average_ceil", nn.AvgPool2d(2, 2, ceil_mode=True), image, torch.bfloat16),
        task("dilated", nn.MaxPool1d(5, 2, 1, dilation=2), line),
        task("max_3", nn.MaxPool3d(3, 2, 1), volume),
        task("average_3", nn.AvgPool3d(3, 2, 1, count_include_pad=False), volume),
        task("adaptive", nn.AdaptiveAvgPool2d(4), _given((8, 32, 16))),
        task("adaptive_max", nn.AdaptiveMaxPool2d((1, 4)), _given((8, 7, 16))),
        task(
            "channel",
            lambda x, w: F.max_pool2d(F.relu(x), 2) * w + 1,
            lambda size: (torch.randn(size, 8, 37, 41), torch.randn(8, 1, 1)),
        ),
        task("beside", lambda x, y: F.max_pool2d(x, 3, 1, 1) + y, _given((8, 37, 41), (8, 37, 41))),
        task("flattened", lambda x: F.avg_pool2d(x, 4).flatten(1), image),
    ]


@cache
def scans() -> list[Task]:
    rows = _given((48, 160))
    return [
        task("sums", lambda x: torch.cumsum(x, -1), rows),
        task(
            "masked",
            lambda x, m: torch.cumsum(x * m, 1) * 0.1,
            lambda size: (torch.randn(size, 3000), torch.randn(size, 3000) > 0),
        ),
        task("reversed", _reversed, _given((3001,))),
        task("products", lambda x: torch.cumprod(1 + x * 0.01, -1), rows),
        task("cut", lambda x, y: torch.cumsum(x[..., :-1] * y[..., :-1], -1), _given((48, 160), (48, 160))),
        task("largest", lambda x: torch.relu(torch.cummax(x, -1)[0]), rows),
        task("columns_smallest", lambda x: torch.cummin(x, 1)[0], rows),
        task("columns", lambda x: torch.relu(torch.cumsum(x, 1)), rows),
        task("columns_reversed", _reversed, _given((148, 161))),
        task("columns_products", lambda x: torch.cumprod(1 + 0.01 * x, 1) * 2, _given((100, 7)), torch.bfloat16),
        task("residual", lambda x, y: torch.cumsum(x, 1) * torch.sigmoid(x) + y, _given((300,), (1,))),
        task("residual_reversed", lambda x, y: _reversed(x) - x * y, _given((301,), (301,)), torch.bfloat16),
        task("short_rows", lambda x: torch.cumsum(x + 1, 2), _given((100, 7)), torch.float16),
        task("long_rows", lambda x: torch.cumsum(x * x, 1), _given((33001,))),
        task("columns_first", lambda x, y: torch.cumsum(x * y, 0), _given((131,), (131,))),
        task(
            "weighted",
            lambda x, w, s: torch.cumsum(x * w, 2) * s,
            lambda size: (torch.randn(size, 48, 160), torch.randn(160), torch.randn(())),
        ),
    ]


@cache
def strided() -> list[Task]:
    rows = _given((48, 160))
    return [
        task("mean", lambda x: torch.sigmoid(torch.relu(x).mean(1, keepdim=True)), rows, torch.float16),
        task("largest_first", lambda x: x.amax(0), rows),
        task("mean_first", lambda x: x.mean(0), lambda size: (torch.randn(size * 500, 31),)),
        task("norm", lambda x: torch.norm(x, dim=1), rows),
        task("largest", lambda x: torch.max(x, 1)[0], _given((48, 161))),
        task("dot", lambda x, y: (x * y).sum((1, 2)), _given((8, 10, 160), (8, 10, 160))),
        task("product", lambda x: torch.prod(1 + 0.01 * x, 1), rows),
        task("long", lambda x: x.sum(1), _given((4000, 33))),
    ]
