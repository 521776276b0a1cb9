"""Modules that need more than one nest, and operators whose result is a position or a loss; small, with odd sizes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.generator.harness import Computed
from tests.generator.modules import Case, case, spread


def _classes(count: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, count, shape, generator=torch.Generator().manual_seed(count))


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


def _attention(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Scores, softmax over one dimension, weighted sum over another, norm of the result."""
    scores = F.softmax(x.mean(-1), dim=-1)
    return F.layer_norm((x * scores.unsqueeze(-1)).sum(1), (33,), weight, bias)


def _moving_statistics(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The result of a batch norm in training mode, with its new statistics as further results."""
    found = torch.ops.aten._native_batch_norm_legit_functional(x, None, None, mean, variance, True, 0.2, 1e-5)
    return tuple(found)


#: One nest each.
SINGLE: dict[str, Case] = {
    "positions": case(_positions, spread(7, 333).round()),
    "positions of columns": case(_positions, spread(3, 37, 65).round()),
    "positions half": case(_positions, spread(7, 65).bfloat16()),
    "positions double": case(_positions, spread(7, 65).round().double()),
    "positions integers": case(_positions, _classes(9, 5, 33) - 4),
    "positions nan": case(_positions, _with_nans(spread(5, 33))),
    "whole positions": case(_whole_positions, spread(9, 131).round()),
    "pointwise losses": case(_pointwise_losses, spread(6, 501) / 3, spread(6, 502)[:, 1:].contiguous() / 3),
    "pairwise distance": case(lambda x, y: F.pairwise_distance(x, y, p=1.0), spread(7, 33), spread(7, 34)[:, 1:]),
    "batch statistics": (nn.BatchNorm2d(5, track_running_stats=False), (spread(3, 5, 4, 7),)),
    "batch statistics even": (nn.BatchNorm2d(5, track_running_stats=False), (spread(3, 5, 4, 8),)),
    "moving statistics": case(_moving_statistics, spread(3, 5, 4, 7), spread(5), spread(5) ** 2),
    "instance norm evaluated": (nn.InstanceNorm2d(5, affine=True, track_running_stats=True), (spread(3, 5, 4, 7),)),
    "sums apart even": case(lambda x: (x.sum((0, 2)), x.amax((0, 2))), spread(5, 7, 32)),
    "sums apart half": case(lambda x: x.sum((0, 2)), spread(5, 7, 64).bfloat16()),
    "scan of the first": case(lambda x: torch.cumsum(x, 0), spread(37, 65)),
    "sums apart": case(lambda x: (x.sum((0, 2)), x.amax((0, 2))), spread(5, 7, 33)),
}
#: More than one.
COMPOSITES: dict[str, Case] = {
    "cross entropy": case(F.cross_entropy, spread(37, 133), _classes(133, 37)),
    "cross entropy maps": case(F.cross_entropy, spread(3, 7, 33), _classes(7, 3, 33)),
    "cross entropy half": case(F.cross_entropy, spread(37, 133).bfloat16(), _classes(133, 37)),
    "cross entropy smoothed": case(_smoothed, spread(37, 9), _classes(9, 37), spread(9).sigmoid()),
    "cross entropy shares": case(
        lambda x, y: F.cross_entropy(x, y.softmax(1), label_smoothing=0.1), spread(37, 9), spread(37, 10)[:, 1:]
    ),
    "nll": case(lambda x, t: F.nll_loss(F.log_softmax(x, 1), t, reduction="sum"), spread(37, 9), _classes(9, 37)),
    "kl": case(
        lambda x, y: F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="batchmean"),
        spread(37, 65),
        spread(37, 66)[:, 1:].contiguous(),
    ),
    "triplet": case(
        lambda a, b, c: F.triplet_margin_loss(a, b, c, margin=0.7, swap=True),
        spread(37, 9),
        spread(37, 10)[:, 1:].contiguous(),
        spread(37, 11)[:, 2:].contiguous(),
    ),
    "cosine embedding": case(
        lambda x, y, s: F.cosine_embedding_loss(x, y, s.sign(), margin=0.1),
        spread(37, 9),
        spread(37, 10)[:, 1:].contiguous(),
        spread(37),
    ),
    "softmaxes": case(lambda x: F.softmax(F.softmax(x, 0), 1).mean(0), spread(37, 65)),
    "several shapes": case(lambda x: (x.exp(), x.sum(1), x.sum(0), x, x.exp()), spread(37, 65)),
    "all positions": case(
        lambda x: (torch.argmax(x, 1), torch.argmin(x), *torch.max(x, 0), x.argmax(-1, keepdim=True)),
        spread(37, 65).round(),
    ),
    "mixing view": case(lambda x: F.softmax(F.gelu(x.reshape(-1, 7)), 1).view(37, 35).sum(0), spread(37, 35)),
    "scans": case(lambda x: torch.cumsum(torch.cumsum(F.softmax(x, 0), 0), 1), spread(37, 65)),
    "turned scan": case(lambda x: torch.relu(x).transpose(1, 2).flatten(1).cumsum(1), spread(37, 5, 13)),
    "normed scan": case(lambda x: torch.cumsum(F.layer_norm(x, (33,)), 1), spread(3, 7, 33)),
    "weighted rows": case(lambda x: (x * x.sum(1, keepdim=True)).sum(0), spread(37, 65)),
    "standardized": case(lambda x: ((x - x.mean()) / x.std()).softmax(-1), spread(9, 131)),
    "half chain": case(lambda x: F.softmax(F.layer_norm(x, (65,)), 0).transpose(0, 1).relu(), spread(37, 65).half()),
    "attention": (Computed(_attention, torch.linspace(0.5, 1.5, 33), torch.zeros(33)), (spread(3, 7, 33),)),
    "view returned": case(
        lambda x: (F.softmax(F.softmax(x.view(-1, 6), 0), 1), x.view(-1, 6), x.relu().view(-1)), spread(7, 2, 3)
    ),
    "largest share": case(lambda x: (F.softmax(x, 1).max(), F.softmax(x, 1).amin()), spread(37, 65).half()),
    "returned twice": case(lambda x: (x.sum(0), x.sum(0).unsqueeze(0), x.relu(), x.mean()), spread(37, 65)),
}
