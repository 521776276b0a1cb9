"""Critic pre-training: before the actor is trained, the value head learns to predict the rewards of the actor's
episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from kernel_assistant.errors import UsageError
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.trajectory import Trajectory
from kernel_assistant_training.ppo.updates.advantages import explained_variance, gae
from kernel_assistant_training.ppo.updates.batches import PaddedBatch, pieces
from kernel_assistant_training.ppo.updates.losses import value_loss
from kernel_assistant_training.ppo.updates.update import Metrics, NotFiniteError, last_action_rewards


@dataclass(frozen=True)
class CriticOptions:
    """The options of critic pre-training. `epochs` is the number of passes over the trajectories, `rate` the learning
    rate, `budget` the most tokens of a batch. The fraction `share` of the tasks is held out. `gamma` and `lam` are γ
    and λ of the GAE targets, as for the critic in PPO."""

    epochs: int = 10
    rate: float = 1e-3
    budget: int = 32768
    gamma: float = 1.0
    lam: float = 1.0
    share: float = 0.2
    seed: int = 0


@dataclass(frozen=True)
class _CriticBatch:
    rows: PaddedBatch
    rewards: Tensor


def pretrain(
    actor: Actor,
    trajectories: Sequence[Trajectory],
    options: CriticOptions,
    report: Callable[[int, Metrics], bool] = lambda epoch, figures: True,
    *,
    first: int = 0,
) -> list[Metrics]:
    """Trains the value head alone. Returns the metrics (explained variance and value loss, on trained and on held-out
    tasks) before the first epoch and after each epoch; `report` gets them too, and returns whether to continue.

    An earlier start has done the first `first` of the `options.epochs` epochs. All trajectories of a held-out task are
    held out, so that the head has seen none of their prompts. Raises UsageError if there are too few tasks, and
    NotFiniteError before a step with an infinite loss.
    """
    aside, rest = apart(trajectories, options.share, options.seed)
    if not aside or not rest:
        raise UsageError(f"{len(trajectories)} trajectories of too few tasks", "play more before the critic is trained")
    learned, held_out = (_parts(some, actor, options.budget) for some in (rest, aside))
    optimiser = torch.optim.AdamW(actor.head.parameters(), lr=options.rate, weight_decay=0.0)
    figures = [_figures(actor, learned, held_out, options)]
    for epoch in range(first, options.epochs):
        if not report(epoch, figures[-1]):
            return figures
        for part in Random(f"{options.seed} {epoch}").sample(learned, len(learned)):
            _step(actor, optimiser, part, options)
        figures.append(_figures(actor, learned, held_out, options))
    report(options.epochs, figures[-1])
    return figures


def apart(trajectories: Sequence[Trajectory], share: float, seed: int) -> tuple[list[Trajectory], list[Trajectory]]:
    """Splits trajectories by task. Returns two lists: the trajectories of a random fraction `share` of the tasks, and
    those of all other tasks."""
    keys = sorted({one.key for one in trajectories})
    aside = set(Random(seed).sample(keys, round(share * len(keys))))
    return [one for one in trajectories if one.key in aside], [one for one in trajectories if one.key not in aside]


def _parts(trajectories: Sequence[Trajectory], actor: Actor, budget: int) -> list[_CriticBatch]:
    reply_spans = [one.said() for one in trajectories]
    parts = []
    for numbers in pieces([len(one.ids) for one in reply_spans], budget):
        rows = PaddedBatch.of(reply_spans, numbers, actor.device)
        parts.append(
            _CriticBatch(
                rows, last_action_rewards([trajectories[number].reward.value for number in numbers], rows.actions)
            )
        )
    return parts


def _step(actor: Actor, optimiser: torch.optim.Optimizer, part: _CriticBatch, options: CriticOptions) -> None:
    values = actor(part.rows.ids, part.rows.actions, trunk=False).values
    aim = gae(part.rewards, values.detach(), part.rows.actions, gamma=options.gamma, lam=options.lam).returns
    loss = value_loss(values, aim, part.rows.actions, old=values.detach()) / part.rows.actions.sum()
    if not bool(torch.isfinite(loss)):
        raise NotFiniteError("the critic's loss is not finite: training stops before the step", "lower the rate")
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(actor.head.parameters(), 1.0)
    optimiser.step()


@torch.no_grad()
def _figures(
    actor: Actor, learned: Sequence[_CriticBatch], held_out: Sequence[_CriticBatch], options: CriticOptions
) -> Metrics:
    figures: Metrics = {}
    for name, parts in (("train_", learned), ("", held_out)):
        values, returns = [], []
        for part in parts:
            mask = part.rows.actions
            value = actor(part.rows.ids, mask, trunk=False).values
            aim = gae(part.rewards, value, mask, gamma=options.gamma, lam=options.lam).returns
            values.append(value[mask])
            returns.append(aim[mask])
        together, aims = torch.cat(values), torch.cat(returns)
        every = torch.ones_like(together, dtype=torch.bool)
        figures[f"{name}explained_variance"] = explained_variance(together, aims, every)
        figures[f"{name}value_loss"] = float(value_loss(together, aims, every, old=together)) / len(together)
    return figures
