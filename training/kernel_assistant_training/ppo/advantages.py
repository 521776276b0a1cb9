"""Advantages over what the model wrote. Pure; tensors are (B, T), `actions` (B, T) of bool marks the model's tokens.

Observations are taken out before the recursion and come back as zeros: the successor of a reply's last token is the
first token of the next reply. So observation tokens change nothing, however many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

#: Keeps a batch without spread from dividing by nothing.
TINY = 1e-8


@dataclass(frozen=True)
class Advantages:
    """(B, T) each, in the dtype of the values; zero at observations. `returns` are what values should be."""

    advantages: Tensor
    returns: Tensor


@torch.no_grad()
def gae(rewards: Tensor, values: Tensor, actions: Tensor, *, gamma: float = 1.0, lam: float = 0.95) -> Advantages:
    """Generalized advantage estimation (Schulman et al. 2016, arXiv:1506.02438, eq. 16), over actions alone.

    δ_t = r_t + γ V_{t+1} − V_t, A_t = Σ_k (γλ)^k δ_{t+k}, returns A + V; t counts actions, V behind the last is 0.
    Rewards at observations are refused with ValueError: nobody would ever get them.
    """
    if bool((rewards.bool() & ~actions).any()):
        raise ValueError("a reward stands at an observation")
    # Actions to the front, in their order.
    order = torch.argsort((~actions).to(torch.uint8), dim=1, stable=True)
    there = actions.gather(1, order)
    # Selected, not multiplied: what stands at an observation may be anything.
    reward, value = (torch.where(there, one.double().gather(1, order), 0.0) for one in (rewards, values))
    following = torch.nn.functional.pad(value[:, 1:], (0, 1))
    delta = (reward + gamma * following - value) * there
    found = discounted(delta, gamma * lam) * there
    advantages = torch.zeros_like(found).scatter(1, order, found).to(values.dtype)
    return Advantages(advantages, torch.where(actions, advantages + values, 0.0))


def beyond_others(rewards: Sequence[float], groups: Sequence[Hashable]) -> list[float]:
    """Each reward less the mean of the others of its group; 0 where it is alone, since nothing is known of it then.

    The baseline of Kool et al. 2019 and Ahmadian et al. 2024 (arXiv:2402.14740): it does not depend on the episode
    that it is taken from, so the gradient stays that of the reward.
    """
    counts, sums = Counter(groups), dict.fromkeys(groups, 0.0)
    for reward, group in zip(rewards, groups, strict=True):
        sums[group] += reward
    return [
        reward - (sums[group] - reward) / (counts[group] - 1) if counts[group] > 1 else 0.0
        for reward, group in zip(rewards, groups, strict=True)
    ]


def discounted(x: Tensor, factor: float) -> Tensor:
    """Σ_k factor^k x_{t+k} along the last dimension, in log₂ T steps that double what is summed."""
    reach, power = 1, factor
    while reach < x.shape[-1] and power:
        x = x + power * torch.nn.functional.pad(x[..., reach:], (0, reach))
        reach, power = 2 * reach, power * power
    return x


def mean_of(x: Tensor, actions: Tensor) -> Tensor:
    """Mean over actions, () ; 0 where there are none."""
    return torch.where(actions, x, 0.0).sum() / actions.sum().clamp(min=1)


def normalised(advantages: Tensor, actions: Tensor) -> Tensor:
    """Mean 0 and standard deviation 1 over all actions of the batch (Andrychowicz et al. 2021, arXiv:2006.05990),
    zero elsewhere."""
    centred = torch.where(actions, advantages - mean_of(advantages, actions), 0.0)
    return centred / (mean_of(centred.square(), actions).sqrt() + TINY)


def explained_variance(values: Tensor, returns: Tensor, actions: Tensor) -> float:
    """1 − Var(returns − values) / Var(returns) over actions: 1 is perfect, 0 no better than a constant. NaN where the
    returns are all the same."""
    target, error = returns[actions].double(), (returns - values)[actions].double()
    spread = target.var(correction=0) if target.numel() else target.new_zeros(())
    if spread <= TINY:
        return float("nan")
    return float(1 - error.var(correction=0) / spread)
