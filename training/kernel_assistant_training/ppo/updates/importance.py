"""Bounded importance weights: the ratio of the trainer's to the sampler's probabilities.

Trainer and sampler have the same weights but compute with different rounding. Where their probabilities differ, the
update would follow noise, and a token with almost no probability in the trainer has an extreme ratio (the collapse in
arXiv:2602.24286, section on warm-up). The functions have no side effects; tensors are (B, T).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernel_assistant_training.ppo.updates.advantages import mean_of
from kernel_assistant_training.ppo.updates.losses import k3, ratios


@dataclass(frozen=True)
class RatioBounds:
    """Bounds for importance weights. `token` is the upper bound of a token's weight. A sequence is left out if the
    geometric mean of its ratios is not between `low` and `high`, or if for one of its actions the trainer's
    log-probability is below `impossible` and the sampler's is higher by more than `DISAGREE`."""

    token: float = 2.0
    low: float = 0.95
    high: float = 1.05
    impossible: float = -16.0


#: Smallest difference of log-probabilities that counts as disagreement; a rare token that both find improbable is fine.
DISAGREE = 2.0


@dataclass(frozen=True)
class ImportanceWeights:
    """Bounded ratios of probabilities, and statistics. `weights` (B, T) for the policy loss are 0 in sequences that are
    left out; `kept` (B,) says which sequences are kept. `capped_share` is the share of actions whose ratio was bounded,
    `left_out_share` the share of sequences, `largest` the largest ratio, and `kl` the estimate k3 of the KL divergence
    of the sampler from the trainer."""

    weights: Tensor
    kept: Tensor
    capped_share: float
    left_out_share: float
    largest: float
    kl: float


@torch.no_grad()
def guarded(trainer: Tensor, sampler: Tensor, actions: Tensor, bounds: RatioBounds) -> ImportanceWeights:
    """Returns truncated importance weights min(π_trainer / π_sampler, bound) for each token (Ionides 2008; for language
    models: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training"), given the
    log-probabilities of both. Whether a sequence is kept depends on its length-normalised ratio (as in GSPO,
    arXiv:2507.18071) and on single actions, see `RatioBounds`."""
    difference = torch.where(actions, trainer - sampler, 0.0)
    counts = actions.sum(1).clamp(min=1)
    mean = (difference.sum(1) / counts).exp()
    odd = actions & (trainer < bounds.impossible) & (difference < -DISAGREE)
    kept = (mean >= bounds.low) & (mean <= bounds.high) & ~odd.any(1)
    ratio = torch.where(actions, ratios(trainer, sampler), 0.0)
    return ImportanceWeights(
        weights=ratio.clamp(max=bounds.token) * kept[:, None],
        kept=kept,
        capped_share=float(mean_of((ratio > bounds.token).float(), actions)),
        left_out_share=float((~kept).float().mean()),
        largest=float(ratio.max()),
        kl=float(mean_of(k3(sampler, trainer), actions)),
    )
