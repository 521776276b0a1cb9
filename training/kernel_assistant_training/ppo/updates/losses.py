"""The losses of PPO. The functions have no side effects; tensors are (B, T), and the bool tensor `actions` (B, T) marks
the model's tokens.

Each loss is a sum over actions; the caller divides by the number of actions of the whole optimiser step. So the result
does not depend on how a batch is divided into pieces ("token mean", as in DAPO, arXiv:2503.14476, section 3.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernel_assistant_training.ppo.updates.advantages import mean_of

#: Limit of a difference of log-probabilities before exponentiation; e^20 is beyond every bound.
FURTHEST = 20.0


@dataclass(frozen=True)
class Clip:
    """The bounds of PPO's probability ratios: they are clipped to the range from 1 − `low` to 1 + `high`. The defaults
    are those of arXiv:2602.24286, where the upper part of the range is larger.
    """

    low: float = 0.2
    high: float = 0.28


@dataclass(frozen=True)
class PolicyLoss:
    """The policy loss of a batch. `loss` is a scalar tensor with gradients; `clipped` is the share of actions whose
    gradient was removed by clipping; `kl` is the estimate k3 of the KL divergence from the policy that sampled."""

    loss: Tensor
    clipped: float
    kl: float


def ratios(logprobs: Tensor, old: Tensor) -> Tensor:
    return (logprobs - old).clamp(-FURTHEST, FURTHEST).exp()


def policy_loss(
    logprobs: Tensor, old: Tensor, advantages: Tensor, actions: Tensor, clip: Clip, weights: Tensor | None = None
) -> PolicyLoss:
    """Returns the clipped surrogate (Schulman et al. 2017, arXiv:1707.06347, eq. 7) with separate lower and upper
    bounds. `old` are the log-probabilities before the update; `weights` are importance weights as `guarded` returns
    them."""
    ratio = ratios(logprobs, old)
    free, bounded = -advantages * ratio, -advantages * ratio.clamp(1 - clip.low, 1 + clip.high)
    each = torch.maximum(free, bounded) * (1.0 if weights is None else weights)
    return PolicyLoss(
        # Selected, not multiplied: a value at an observation that is not finite must not reach the sum.
        loss=each[actions].sum(),
        clipped=float(mean_of((bounded > free).float(), actions)),
        kl=float(mean_of(k3(old, logprobs).detach(), actions)),
    )


def value_loss(values: Tensor, returns: Tensor, actions: Tensor, *, old: Tensor, clip: float | None = None) -> Tensor:
    """Returns ½ Σ (V − return)² over actions. With `clip`, each term is the larger of two: this term, and the same term
    with V clipped to ± `clip` around the value `old`, as in OpenAI's baselines."""
    error = (values - returns).square()
    if clip is not None:
        held = old + (values - old).clamp(-clip, clip)
        error = torch.maximum(error, (held - returns).square())
    return 0.5 * error[actions].sum()


def k1(logprobs: Tensor, other: Tensor) -> Tensor:
    """Returns log p − log q of the sampled tokens. Its mean is KL(p‖q); a single value may have any sign (Schulman,
    joschu.net/blog/kl-approx.html)."""
    return logprobs - other


def k3(logprobs: Tensor, other: Tensor) -> Tensor:
    """Returns q/p − 1 − log q/p of the sampled tokens. It has the same mean as `k1`, is never negative and has less
    variance (source: see `k1`)."""
    difference = (other - logprobs).clamp(-FURTHEST, FURTHEST)
    return difference.exp() - 1 - difference


def entropy(logits: Tensor) -> Tensor:
    """Returns the entropy −Σ p log p over the last dimension, in nats."""
    logprobs = logits.float().log_softmax(-1)
    return -(logprobs.exp() * logprobs).sum(-1)
