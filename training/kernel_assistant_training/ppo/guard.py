"""Guard of importance ratios: the trainer's probabilities against those of the decoder that sampled.

Both have the same weights, but not the same arithmetic. Where they disagree the update would be made of noise, and a
token that the trainer holds for all but impossible makes a ratio explode (the collapse of arXiv:2602.24286, section on
warm-up). Pure; tensors are (B, T).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernel_assistant_training.ppo.advantages import mean_of
from kernel_assistant_training.ppo.losses import k3, ratios


@dataclass(frozen=True)
class Bounds:
    """`token` bounds the weight of a token from above. A sequence is left out where the geometric mean of its ratios is
    not between `low` and `high`, or the trainer gives one of its actions less than `impossible`, as a natural
    logarithm, and the decoder at least e² times as much."""

    token: float = 2.0
    low: float = 0.95
    high: float = 1.05
    impossible: float = -16.0


#: Both must call a token improbable for it to be an honest rare draw.
DISAGREE = 2.0


@dataclass(frozen=True)
class Guarded:
    """`weights` (B, T) for the policy loss, 0 where a sequence is left out; `kept` (B,) of bool. Shares are of actions,
    and of sequences; `kl` is k3 of the sampler against the trainer."""

    weights: Tensor
    kept: Tensor
    capped_share: float
    left_out_share: float
    largest: float
    kl: float


@torch.no_grad()
def guarded(trainer: Tensor, sampler: Tensor, actions: Tensor, bounds: Bounds) -> Guarded:
    """Truncated importance weights min(π_trainer / π_sampler, bound) of a token (Ionides 2008, as TIS for language
    models: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training"), and sequences by
    their length-normalised ratio (that of GSPO, arXiv:2507.18071)."""
    difference = torch.where(actions, trainer - sampler, 0.0)
    counts = actions.sum(1).clamp(min=1)
    mean = (difference.sum(1) / counts).exp()
    odd = actions & (trainer < bounds.impossible) & (difference < -DISAGREE)
    kept = (mean >= bounds.low) & (mean <= bounds.high) & ~odd.any(1)
    ratio = torch.where(actions, ratios(trainer, sampler), 0.0)
    return Guarded(
        weights=ratio.clamp(max=bounds.token) * kept[:, None],
        kept=kept,
        capped_share=float(mean_of((ratio > bounds.token).float(), actions)),
        left_out_share=float((~kept).float().mean()),
        largest=float(ratio.max()),
        kl=float(mean_of(k3(sampler, trainer), actions)),
    )
