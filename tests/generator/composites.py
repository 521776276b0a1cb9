"""Modules that need more than one nest, and operators whose result is a position or a loss; small, with odd sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.generator.harness import Function, Tensors

Case = tuple[nn.Module, Tensors]


def _spread(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))) * 3


def _classes(count: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, count, shape, generator=torch.Generator().manual_seed(count))


def _case(function: Callable[..., Any], *args: torch.Tensor) -> Case:
    return Function(function), args


def _positions(x: torch.Tensor) -> Any:
    return (torch.argmax(x, 1), torch.argmin(x, 1), *x.max(1), *torch.min(x, dim=1, keepdim=True))


def _whole_positions(x: torch.Tensor) -> Any:
    return torch.argmax(x), torch.argmin(x), x.max()


def _with_nans(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[0, 3] = x[0, 7] = x[2, 0] = float("nan")
    x[1, 5] = float("inf")
    x[3] = -float("inf")
    return x


def _smoothed(x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target, weight, ignore_index=2, label_smoothing=0.1)


def _pointwise_losses(x: torch.Tensor, y: torch.Tensor) -> Any:
    p, q = x.sigmoid(), y.sigmoid()
    return (
        F.smooth_l1_loss(x, y, beta=0.5),
        F.huber_loss(x, y, delta=0.5, reduction="sum"),
        F.binary_cross_entropy(p, q),
        F.binary_cross_entropy_with_logits(x, q, weight=p, pos_weight=q),
        F.kl_div(p.log(), q, reduction="batchmean"),
        F.kl_div(p.log(), q.log(), reduction="sum", log_target=True),
        F.soft_margin_loss(x, y.sign()),
        F.hinge_embedding_loss(x, y.sign(), margin=0.5),
        F.margin_ranking_loss(x, y, (x + y).sign(), margin=0.1),
        F.poisson_nll_loss(x, q * 4, full=True),
        F.l1_loss(x, y),
        torch.mean(torch.clamp(1 - x * y.sign(), min=0)),
    )


class _Attention(nn.Module):
    """Scores, softmax over one dimension, weighted sum over another, norm of the result."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(33)
        self.norm.weight.data = torch.linspace(0.5, 1.5, 33)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = F.softmax(x.mean(-1), dim=-1)
        return self.norm((x * scores.unsqueeze(-1)).sum(1))


def _moving_statistics(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The result of a batch norm in training mode, with its new statistics as further results."""
    found = torch.ops.aten._native_batch_norm_legit_functional(x, None, None, mean, variance, True, 0.2, 1e-5)
    return tuple(found)


#: One nest each.
SINGLE: dict[str, Case] = {
    "positions": _case(_positions, _spread(7, 333).round()),
    "positions of columns": _case(_positions, _spread(3, 37, 65).round()),
    "positions half": _case(_positions, _spread(7, 65).bfloat16()),
    "positions double": _case(_positions, _spread(7, 65).round().double()),
    "positions integers": _case(_positions, _classes(9, 5, 33) - 4),
    "positions nan": _case(_positions, _with_nans(_spread(5, 33))),
    "whole positions": _case(_whole_positions, _spread(9, 131).round()),
    "pointwise losses": _case(_pointwise_losses, _spread(6, 501) / 3, _spread(6, 502)[:, 1:].contiguous() / 3),
    "pairwise distance": _case(lambda x, y: F.pairwise_distance(x, y, p=1.0), _spread(7, 33), _spread(7, 34)[:, 1:]),
    "batch statistics": (nn.BatchNorm2d(5, track_running_stats=False), (_spread(3, 5, 4, 7),)),
    "batch statistics even": (nn.BatchNorm2d(5, track_running_stats=False), (_spread(3, 5, 4, 8),)),
    "moving statistics": _case(_moving_statistics, _spread(3, 5, 4, 7), _spread(5), _spread(5) ** 2),
    "instance norm evaluated": (nn.InstanceNorm2d(5, affine=True, track_running_stats=True), (_spread(3, 5, 4, 7),)),
    "sums apart even": _case(lambda x: (x.sum((0, 2)), x.amax((0, 2))), _spread(5, 7, 32)),
    "sums apart half": _case(lambda x: x.sum((0, 2)), _spread(5, 7, 64).bfloat16()),
    "scan of the first": _case(lambda x: torch.cumsum(x, 0), _spread(37, 65)),
    "sums apart": _case(lambda x: (x.sum((0, 2)), x.amax((0, 2))), _spread(5, 7, 33)),
}
#: More than one.
COMPOSITES: dict[str, Case] = {
    "cross entropy": _case(F.cross_entropy, _spread(37, 133), _classes(133, 37)),
    "cross entropy maps": _case(F.cross_entropy, _spread(3, 7, 33), _classes(7, 3, 33)),
    "cross entropy half": _case(F.cross_entropy, _spread(37, 133).bfloat16(), _classes(133, 37)),
    "cross entropy smoothed": _case(_smoothed, _spread(37, 9), _classes(9, 37), _spread(9).sigmoid()),
    "cross entropy shares": _case(
        lambda x, y: F.cross_entropy(x, y.softmax(1), label_smoothing=0.1), _spread(37, 9), _spread(37, 10)[:, 1:]
    ),
    "nll": _case(lambda x, t: F.nll_loss(F.log_softmax(x, 1), t, reduction="sum"), _spread(37, 9), _classes(9, 37)),
    "kl": _case(
        lambda x, y: F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="batchmean"),
        _spread(37, 65),
        _spread(37, 66)[:, 1:].contiguous(),
    ),
    "triplet": _case(
        lambda a, b, c: F.triplet_margin_loss(a, b, c, margin=0.7, swap=True),
        _spread(37, 9),
        _spread(37, 10)[:, 1:].contiguous(),
        _spread(37, 11)[:, 2:].contiguous(),
    ),
    "cosine embedding": _case(
        lambda x, y, s: F.cosine_embedding_loss(x, y, s.sign(), margin=0.1),
        _spread(37, 9),
        _spread(37, 10)[:, 1:].contiguous(),
        _spread(37),
    ),
    "softmaxes": _case(lambda x: F.softmax(F.softmax(x, 0), 1).mean(0), _spread(37, 65)),
    "several shapes": _case(lambda x: (x.exp(), x.sum(1), x.sum(0), x, x.exp()), _spread(37, 65)),
    "all positions": _case(
        lambda x: (torch.argmax(x, 1), torch.argmin(x), *torch.max(x, 0), x.argmax(-1, keepdim=True)),
        _spread(37, 65).round(),
    ),
    "mixing view": _case(lambda x: F.softmax(F.gelu(x.reshape(-1, 7)), 1).view(37, 35).sum(0), _spread(37, 35)),
    "scans": _case(lambda x: torch.cumsum(torch.cumsum(F.softmax(x, 0), 0), 1), _spread(37, 65)),
    "turned scan": _case(lambda x: torch.relu(x).transpose(1, 2).flatten(1).cumsum(1), _spread(37, 5, 13)),
    "normed scan": _case(lambda x: torch.cumsum(F.layer_norm(x, (33,)), 1), _spread(3, 7, 33)),
    "weighted rows": _case(lambda x: (x * x.sum(1, keepdim=True)).sum(0), _spread(37, 65)),
    "standardized": _case(lambda x: ((x - x.mean()) / x.std()).softmax(-1), _spread(9, 131)),
    "half chain": _case(lambda x: F.softmax(F.layer_norm(x, (65,)), 0).transpose(0, 1).relu(), _spread(37, 65).half()),
    "attention": (_Attention(), (_spread(3, 7, 33),)),
    "view returned": _case(
        lambda x: (F.softmax(F.softmax(x.view(-1, 6), 0), 1), x.view(-1, 6), x.relu().view(-1)), _spread(7, 2, 3)
    ),
    "largest share": _case(lambda x: (F.softmax(x, 1).max(), F.softmax(x, 1).amin()), _spread(37, 65).half()),
    "returned twice": _case(lambda x: (x.sum(0), x.sum(0).unsqueeze(0), x.relu(), x.mean()), _spread(37, 65)),
}
