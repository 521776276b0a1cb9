"""Modules around pooling, gathers and layout operators, small and with odd sizes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.generator.modules import Case, case, spread


def indices(below: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(sum(shape)))


def _mixed(x: torch.Tensor) -> Any:
    """Three windows over the same positions, which count elements in different ways."""
    options = {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}
    left = F.avg_pool2d(x, **options, count_include_pad=False)
    return left, F.avg_pool2d(x, **options), F.avg_pool2d(x, **options, divisor_override=7) * F.max_pool2d(x, **options)


class Lookups(nn.Module):
    """Five tables, each with a place of its own in the result."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dim, self.tables = dim, nn.ModuleList(nn.Embedding(11 + number, 8) for number in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = [table((x * (number + 3)) % (11 + number)) for number, table in enumerate(self.tables)]
        return torch.cat(found, self.dim)


def _steps(x: torch.Tensor) -> torch.Tensor:
    """A recurrence along the second dimension."""
    state, states = torch.zeros_like(x[:, 0]), []
    for step in range(x.shape[1]):
        state = torch.sigmoid(x[:, step]) * state + x[:, step]
        states.append(state)
    return torch.stack(states, 1)


def _put(cache: torch.Tensor, dim: int, positions: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A copy of `cache` with `values` at these positions of a dimension."""
    found = cache.clone()
    found[(*[slice(None)] * dim, positions)] = values
    return found


def _written(x: torch.Tensor) -> torch.Tensor:
    found = x.clone()
    found[:, 0] = x[:, 1] * 2
    found[:, :, 1:3] = x[:, :, 3:5]
    return found


def _laplace(x: torch.Tensor) -> torch.Tensor:
    return sum(torch.roll(x, shift, dim) for shift in (1, -1) for dim in (-1, -2)) - 4 * x


IMAGE = spread(3, 4, 17, 29)
VOLUME = spread(2, 3, 9, 10, 13)
ROW = spread(3, 4, 133)
#: Shapes of the public benchmarks, scaled down, and everything that a window can be.
WINDOWS: dict[str, Case] = {
    "max 1d dilated": case(lambda x: F.max_pool1d(x, 8, 1, 4, 3), ROW),
    "max 2d": case(lambda x: F.max_pool2d(x, 4, 1, 1, 1), IMAGE),
    "max 2d ceil": case(lambda x: F.max_pool2d(x, 3, 2, 1, 2, ceil_mode=True), IMAGE),
    "max 3d dilated": case(lambda x: F.max_pool3d(x, 3, 2, 1, 3), spread(2, 3, 17, 18, 19)),
    "max 2d only values": case(lambda x: F.max_pool2d(x, 2, return_indices=True)[0], IMAGE),
    "max of integers": case(lambda x: F.max_pool2d(x, 3, 2, 1), indices(99, 2, 3, 9, 9) - 50),
    "average 1d": case(lambda x: F.avg_pool1d(x, 8, 1, 4), ROW),
    "average 2d wide": case(lambda x: F.avg_pool2d(x, 11), spread(2, 3, 45, 67)),
    "average 2d long": case(lambda x: F.avg_pool2d(x, (1, 40), (1, 3)), spread(2, 3, 5, 133)),
    "average 3d": case(lambda x: F.avg_pool3d(x, 3, 2, 1), VOLUME),
    "average 3d uncounted": case(lambda x: F.avg_pool3d(x, 3, 2, 1, count_include_pad=False), VOLUME),
    "mixed": case(_mixed, IMAGE),
    "power": case(lambda x: F.lp_pool2d(x, 2, 3), IMAGE),
    "fused": case(lambda x, b: F.gelu(F.max_pool2d(F.relu(x) * b, 2)) + 1, IMAGE, spread(4, 1, 1)),
    "residual": case(lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False) - x, IMAGE),
    "down columns": case(lambda x: F.max_pool1d(x.transpose(1, 2), 33, 1).transpose(1, 2), spread(2, 70, 19)),
    "channels last": case(lambda x: F.max_pool2d(x.permute(0, 3, 1, 2), 2), spread(2, 16, 17, 5)),
    "adaptive": case(lambda x: F.adaptive_avg_pool2d(x, (4, 3)), spread(2, 3, 16, 21)),
    "adaptive max": case(lambda x: F.adaptive_max_pool1d(x, 7), ROW),
    "bf16": case(lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE.bfloat16()),
    "fp16": case(lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE.half()),
    "double": case(lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE.double()),
    "flattened": case(lambda x: F.max_pool2d(x, 3).flatten(1), IMAGE),
    "one row": case(lambda x: F.max_pool2d(x, (17, 2)), IMAGE),
    "one column": case(lambda x: F.max_pool2d(x, (2, 29)), IMAGE),
    "one output": case(lambda x: F.avg_pool2d(x, (15, 20)), IMAGE),
    "of padded": case(lambda x: F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), 3, 2), IMAGE),
    "of windows": case(lambda x: F.max_pool2d(F.max_pool2d(x, 3, 1, 1), 3, 1, 1), IMAGE),
    "joined": case(lambda x: torch.cat([F.max_pool2d(x, 2), F.avg_pool2d(x, 2)], 1), IMAGE),
}


def _with_nan(*shape: int) -> torch.Tensor:
    x = spread(*shape)
    x.view(-1)[:: x.numel() // 9] = float("nan")
    return x


def _two(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return F.max_pool1d(x, 5, 2, 2), F.avg_pool1d(x, 3, 2, 1, count_include_pad=False)


#: Rows long enough for warps and blocks to lie inside them, with vectors at every distance from their beginning.
STRIPS: dict[str, Case] = {
    "strip: even rows": case(lambda x: F.max_pool1d(x, 3, 2, 1, 1).relu() + 1, spread(2, 3, 2048)),
    "strip: odd rows": case(lambda x: F.max_pool1d(x, 8, 1, 4, 3), spread(2, 3, 1280)),
    "strip: halves": case(lambda x: F.avg_pool1d(x, 8, 1, 4), spread(2, 3, 1280).bfloat16()),
    "strip: long halves": case(lambda x: F.avg_pool1d(x, 9, 2, 3, ceil_mode=True), spread(2, 3, 4096).half()),
    "strip: images": case(lambda x, b: F.max_pool2d(x, 4, 1, 1) + b, spread(2, 3, 9, 257), spread(3, 8, 256)),
    "strip: volumes": case(lambda x: F.max_pool3d(x.relu(), 3, 2, 1), spread(2, 3, 7, 9, 512).bfloat16()),
    "strip: with nan": case(lambda x: F.max_pool1d(x, 8, 1, 0, 2), _with_nan(2, 3, 2048)),
    "strip: wide": case(lambda x: F.avg_pool1d(x, 5, 3), spread(1, 2, 3 * 4096 + 4)),
    "strip: two": case(_two, spread(2, 3, 1024)),
}
#: Windows that are part of another family.
OTHERS: dict[str, Case] = {
    "rows: all of it": case(lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
    "rows: all of a volume": case(lambda x: F.adaptive_max_pool3d(x, 1), VOLUME),
    "rows: softmax of a window": case(lambda x: F.softmax(F.max_pool1d(x, 3), -1), ROW),
    "rows: mean of a window": case(lambda x: F.avg_pool2d(x, 2).mean((2, 3)), IMAGE),
    "pointwise: down columns": case(lambda x: F.max_pool1d(x.transpose(1, 2), 2).transpose(1, 2), ROW),
    "pointwise: slice of a window": case(lambda x: F.max_pool2d(x, 2)[..., 1:], IMAGE),
}
CHAINS: dict[str, Case] = {
    "indices 1d": case(lambda x: F.max_pool1d(x, 8, 3, 4, 3, return_indices=True), ROW),
    "indices 2d": case(lambda x: F.max_pool2d(x.relu(), 3, 2, 1, return_indices=True), IMAGE),
    "indices 3d": case(lambda x: F.max_pool3d(x, 2, return_indices=True)[1], VOLUME),
    "indices of ties": case(lambda x: F.max_pool2d(x, 3, 1, 1, return_indices=True), indices(2, 3, 2, 7, 9).float()),
    "uneven average": case(lambda x: F.adaptive_avg_pool2d(x, (7, 12)), IMAGE),
    "uneven average of halves": case(lambda x: F.adaptive_avg_pool1d(x, 31), ROW.bfloat16()),
    "indices, adaptive": case(lambda x: F.adaptive_max_pool1d(x.relu(), x.shape[-1] // 4, return_indices=True), ROW),
    "indices, uneven": case(lambda x: F.adaptive_max_pool2d(x, (6, 29), return_indices=True), IMAGE),
    "indices of ties, uneven": case(
        lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True), indices(2, 3, 2, 7, 9).float()
    ),
    "uneven maximum": case(lambda x: F.adaptive_max_pool2d(x, (6, 29)), IMAGE),
    "finer": case(lambda x: F.interpolate(x, size=(34, 40), mode="area"), IMAGE),
}
TABLE = spread(9, 7)


def _padding(mask: torch.Tensor) -> torch.Tensor:
    """A causal mask without what is padding, as transformers makes it."""
    row, column = torch.arange(9)[:, None], torch.arange(9)[None, :]
    kept = mask[torch.arange(mask.shape[0])[:, None, None, None], column[None, None]].bool()
    return kept & (column <= row)


GATHERS: dict[str, Case] = {
    "embedding": case(lambda i, w: F.embedding(i, w, padding_idx=0), indices(9, 3, 5), TABLE),
    "embedding of halves": case(lambda i, w: F.embedding(i, w).relu(), indices(9, 3, 5).int(), spread(9, 16).half()),
    "index_select": case(lambda x, i: x.index_select(1, i), IMAGE, torch.tensor([0, 2, 2, 3, 1])),
    "gather": case(lambda x, i: x.gather(1, i), spread(3, 9), indices(9, 3, 5)),
    "gather fewer": case(lambda x, i: x.gather(1, i), spread(4, 9), indices(9, 2, 5)),
    "some rows": case(lambda x, i: x[i], TABLE, indices(9, 3, 5) - 4),
    "some columns": case(lambda x, i: x[:, i] * 2, spread(3, 9, 4), indices(9, 6) - 9),
    "pairs": case(lambda x, i, j: x[:, i, j], spread(3, 9, 7), indices(9, 3, 5), indices(7, 3, 5)),
    "pairs by places": case(
        lambda x: x[torch.arange(x.shape[0])[:, None, None], torch.arange(9)[:, None]], spread(3, 9)
    ),
    "pairs of one row": case(lambda x: x[torch.arange(1)[:, None, None], torch.arange(9)[:, None]] + 1, spread(1, 9)),
    "mask of padding": case(_padding, indices(2, 3, 9)),
    "mask of padding, one row": case(_padding, indices(2, 1, 9)),
    "take_along_dim": case(lambda x, i: torch.take_along_dim(x, i, 1), spread(3, 9), indices(9, 3, 5)),
    "one_hot": case(lambda i: F.one_hot(i, 7), indices(7, 3, 5)),
    "one_hot scaled": case(lambda i: F.one_hot(i, 7).float() * 0.9 + 0.1 / 7, indices(7, 3, 5)),
    "of a function": case(lambda x, i: (x.exp() + 1)[i], TABLE, indices(9, 4)),
    "one position is written": case(
        lambda k, i, x: _put(k, 2, i, x * 2), spread(2, 3, 9, 4), torch.tensor([5]), spread(2, 3, 1, 4)
    ),
    "one row is written everywhere": case(
        lambda k, i, x: _put(k, 1, i, x).exp(), spread(2, 9, 4), torch.tensor([-1]), spread(4)
    ),
    "several positions are written": case(
        lambda k, i, x: _put(k, 1, i, x), spread(2, 9, 4), torch.tensor([3, -9, 8]), spread(2, 3, 4)
    ),
    "index_copy": case(
        lambda k, i, x: torch.index_copy(k, 1, i, x).half(), spread(3, 9, 4), torch.tensor([0, 6]), spread(3, 2, 4)
    ),
    "wide rows": case(lambda i, w, p: F.embedding(i, w) + p, indices(9, 2, 5), spread(9, 64), spread(5, 64)),
}
LAYOUT: dict[str, Case] = {
    "cat": case(lambda a, b: torch.cat([a, b.relu(), a], 1), IMAGE, spread(3, 5, 17, 29)),
    "cat last": case(lambda a, b: torch.cat([a, b, a.exp()], -1), IMAGE, spread(3, 4, 17, 3)),
    "cat free": case(lambda a, b: torch.cat([a, b]), spread(3, 7), spread(5, 7)),
    "cat zeros": case(lambda a: torch.cat([a[:, :1], a, torch.zeros(3, 2)], 1), spread(3, 7)),
    "cat transposed": case(lambda a: torch.cat([a, a.transpose(1, 2)], 2), spread(3, 5, 5)),
    "cat even": case(lambda a, b: torch.cat([a, b], 1) * 2, spread(3, 4, 32), spread(3, 2, 32)),
    "hstack": case(lambda a, b: torch.hstack([a, b]), ROW, ROW),
    "stack": case(lambda a, b: torch.stack([a, b.exp()], 1), IMAGE, IMAGE),
    "cat of lookups": (Lookups(), (indices(100, 3, 7),)),
    "cat of lookups in front": (Lookups(0), (indices(100, 3, 7),)),
    "norm of a cat of lookups": (nn.Sequential(Lookups(), nn.LayerNorm(40)), (indices(100, 16, 32),)),
    "stack of steps": case(_steps, spread(3, 6, 40)),
    "stack of steps behind": case(lambda x: _steps(x).transpose(1, 2), spread(3, 6, 40)),
    "stack of steps and the last": case(lambda x: (_steps(x), _steps(x)[:, -1] * 2), spread(3, 6, 40)),
    "stack of steps that a sum follows": case(lambda x: _steps(x).sum(1), spread(3, 6, 40)),
    "stack last": case(lambda a, b: torch.stack([a, b], -1), IMAGE, IMAGE),
    **{
        f"pad {mode}": case(lambda x, mode=mode: F.pad(x, (1, 2, 3, 1), mode=mode), IMAGE)
        for mode in ("constant", "reflect", "replicate", "circular")
    },
    "pad volume": case(lambda x: F.pad(x.relu(), (1, 2, 3, 1, 2, 0), mode="replicate"), VOLUME),
    "pad by an operator's own name": case(lambda x: torch.ops.aten.replication_pad2d(x, [1, 2, 3, 1]), IMAGE),
    "pad cut": case(lambda x: F.pad(x, (1, -2), value=3.5), IMAGE),
    "pad free": case(lambda x: F.pad(x, (0, 0, 1, 0, 0, 0, 2, 1)), IMAGE),
    "differences": case(lambda x: F.pad(x, (1, 1))[..., 2:] - F.pad(x, (1, 1))[..., :-2], IMAGE),
    "roll": case(lambda x: torch.roll(x, (2, -3), (2, 3)), IMAGE),
    "roll free": case(lambda x: torch.roll(x, -2, 0) + x, IMAGE),
    "roll flat": case(lambda x: torch.roll(x, 5), IMAGE),
    "laplace": case(_laplace, IMAGE),
    "repeat": case(lambda x: x.repeat(1, 2, 1, 3), IMAGE),
    "repeat as rows": case(lambda x: x.repeat(2, 1, 1), spread(4, 5)),
    "tile": case(lambda x: x.tile(2, 3), IMAGE),
    "repeat_interleave": case(lambda x: x.repeat_interleave(3, 1) + 1, IMAGE),
    "unfold": case(lambda x: x.unfold(-1, 3, 2) * 2, IMAGE),
    "columns of images": case(lambda x: F.unfold(x, 3, padding=1, stride=2), IMAGE),
    **{
        f"{mode} {name}": case(lambda x, mode=mode, to=to: F.interpolate(x, mode=mode, **to), IMAGE)
        for mode in ("nearest", "nearest-exact", "bilinear")
        for name, to in (("twice", {"scale_factor": 2}), ("size", {"size": (7, 31)}))
    },
    "bilinear factors": case(lambda x: F.interpolate(x, scale_factor=(0.6, 1.7), mode="bilinear"), IMAGE),
    "bilinear corners": case(lambda x: F.interpolate(x, size=(7, 31), mode="bilinear", align_corners=True), IMAGE),
    "linear": case(lambda x: F.interpolate(x, size=7, mode="linear"), ROW),
    "trilinear": case(lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), VOLUME),
    "bilinear half": case(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), IMAGE.bfloat16()),
    "pixel_shuffle": case(lambda x: F.pixel_shuffle(x, 2), IMAGE),
    "pixel_unshuffle": case(lambda x: F.pixel_unshuffle(x, 2), spread(3, 2, 6, 10)),
    "channel_shuffle": case(lambda x: F.channel_shuffle(x, 2), IMAGE),
    "triangles": case(lambda x: torch.tril(x) + torch.triu(x, 1) * 2, spread(3, 5, 6)),
    "diag": case(lambda x: torch.diag(x, 2), spread(5)),
    "diagonal": case(lambda x: torch.diagonal(x, -1, 1, 2) * 2, spread(3, 5, 5)),
    "diag_embed": case(torch.diag_embed, spread(3, 5)),
    "eye": case(lambda x: x + torch.eye(5), spread(5, 5)),
    "unbind": case(lambda x: x.unbind(1)[0] + x.unbind(1)[1], spread(3, 2, 5)),
    "written": case(_written, spread(3, 2, 7)),
    "swapped": case(lambda x: x.transpose(1, 2).contiguous(), IMAGE),
    "transposed": case(lambda x: x.permute(0, 2, 3, 1).contiguous().relu(), spread(2, 33, 9, 11)),
    "transposed halves": case(
        lambda x, b: x.transpose(1, 2).contiguous() + b, spread(3, 70, 41).half(), spread(70).half()
    ),
    "slice of joined": case(lambda x: x.view(3, -1)[:, 3:50], spread(3, 4, 17)[:, :, :15].contiguous()),
}
