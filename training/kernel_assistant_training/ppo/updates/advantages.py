"""Computes advantages of the tokens that the model wrote. Has no side effects; tensors are (B, T), and the bool tensor
`actions` (B, T) marks the model's tokens.

Observation tokens (all other text) are removed before the recursion, so that the first token of a reply follows the
last token of the previous reply. In the result, observation tokens have advantage 0. So the number of observation
tokens does not affect the advantages of actions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

#: Prevents division by zero for a batch without variance.
TINY = 1e-8


@dataclass(frozen=True)
class Advantages:
    """Advantages and returns, (B, T) each, in the dtype of the values; 0 at tokens that the model did not write.
    `returns` are the targets of the values."""

    advantages: Tensor
    returns: Tensor


@torch.no_grad()
def gae(rewards: Tensor, values: Tensor, actions: Tensor, *, gamma: float = 1.0, lam: float = 0.95) -> Advantages:
    """Computes the generalized advantage estimation (Schulman et al. 2016, arXiv:1506.02438, eq. 16) over actions
    alone.

    δ_t = r_t + γ V_{t+1} − V_t, A_t = Σ_k (γλ)^k δ_{t+k}; returns are A + V. t counts actions only; V after the last
    action is 0. Raises ValueError for a reward at a token that is no action, because it would be ignored.
    """
    if bool((rewards.bool() & ~actions).any()):
        raise ValueError("a reward stands at an observation")
    # Move actions to the front, keeping their order.
    order = torch.argsort((~actions).to(torch.uint8), dim=1, stable=True)
    there = actions.gather(1, order)
    # Selected, not multiplied: values at observations may be anything, even NaN.
    reward, value = (torch.where(there, one.double().gather(1, order), 0.0) for one in (rewards, values))
    following = torch.nn.functional.pad(value[:, 1:], (0, 1))
    delta = (reward + gamma * following - value) * there
    estimate = discounted(delta, gamma * lam) * there
    advantages = torch.zeros_like(estimate).scatter(1, order, estimate).to(values.dtype)
    return Advantages(advantages, torch.where(actions, advantages + values, 0.0))


def beyond_others(rewards: Sequence[float], groups: Sequence[Hashable]) -> list[float]:
    """Returns each reward minus the mean of the other rewards in its group; 0 if the group has no other reward.

    This is the baseline of Kool et al. 2019 and Ahmadian et al. 2024 (arXiv:2402.14740). It does not depend on the
    episode from whose reward it is subtracted, so the gradient stays unbiased.
    """
    counts, sums = Counter(groups), dict.fromkeys(groups, 0.0)
    for reward, group in zip(rewards, groups, strict=True):
        sums[group] += reward
    return [
        reward - (sums[group] - reward) / (counts[group] - 1) if counts[group] > 1 else 0.0
        for reward, group in zip(rewards, groups, strict=True)
    ]


def discounted(x: Tensor, factor: float) -> Tensor:
    """Returns Σ_k factor^k x_{t+k} along the last dimension, computed in log₂ T steps, each of which doubles the number
    of summed terms."""
    reach, power = 1, factor
    while reach < x.shape[-1] and power:
        x = x + power * torch.nn.functional.pad(x[..., reach:], (0, reach))
        reach, power = 2 * reach, power * power
    return x


def mean_of(x: Tensor, actions: Tensor) -> Tensor:
    """Returns the mean of `x` over actions, as a scalar tensor; 0 without actions."""
    return torch.where(actions, x, 0.0).sum() / actions.sum().clamp(min=1)


def normalised(advantages: Tensor, actions: Tensor) -> Tensor:
    """Returns the advantages, shifted and scaled to mean 0 and standard deviation 1 over all actions of the batch
    (Andrychowicz et al. 2021, arXiv:2006.05990); 0 at tokens that are not actions."""
    centred = torch.where(actions, advantages - mean_of(advantages, actions), 0.0)
    return centred / (mean_of(centred.square(), actions).sqrt() + TINY)


def explained_variance(values: Tensor, returns: Tensor, actions: Tensor) -> float:
    """Returns 1 − Var(returns − values) / Var(returns) over actions: 1 is perfect, 0 no better than a constant. NaN if
    all returns are equal."""
    target, error = returns[actions].double(), (returns - values)[actions].double()
    spread = target.var(correction=0) if target.numel() else target.new_zeros(())
    if spread <= TINY:
        return float("nan")
    return float(1 - error.var(correction=0) / spread)
