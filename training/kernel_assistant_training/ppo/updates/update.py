"""Makes one update of PPO: turns a batch of trajectories into new weights, with metrics."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from random import Random
from typing import Any, TypeVar

import torch
from torch import Tensor

from kernel_assistant.errors import InternalError
from kernel_assistant_training.ppo.model.actor import Actor, ActorOutput, full
from kernel_assistant_training.ppo.model.process_group import ProcessGroup
from kernel_assistant_training.ppo.trajectory import ReplySpans, Trajectory
from kernel_assistant_training.ppo.updates.advantages import beyond_others, explained_variance, gae, mean_of, normalised
from kernel_assistant_training.ppo.updates.batches import PaddedBatch, in_steps
from kernel_assistant_training.ppo.updates.importance import ImportanceWeights, RatioBounds, guarded
from kernel_assistant_training.ppo.updates.kl import KlControl
from kernel_assistant_training.ppo.updates.losses import Clip, k3, policy_loss, value_loss

#: Metrics by their names in `metrics.jsonl`.
Metrics = dict[str, float]
#: ids and actions → the output of another policy, without gradients.
Reference = Callable[[Tensor, Tensor], ActorOutput]
T = TypeVar("T")
#: Baselines of a reward besides the value head: none, or the other episodes of its task.
BASELINES = ("value", "others")
#: The command to the other processes, see `process_group.py`.
UPDATE = "update"


class NotFiniteError(InternalError):
    """Raised if a loss or a gradient is not finite. The step that detected it changed no weights."""


@dataclass(frozen=True)
class UpdateOptions:
    """The options of an update. It makes `epochs` passes over a batch, each in `steps` optimiser steps, with at most
    `budget` padded tokens in one forward pass. The defaults of learning rates, clipping, γ and λ are those of
    arXiv:2602.24286. The critic's targets have their own λ, `critic_lam` (decoupled GAE, arXiv:2503.01491): at 0.95 a
    reward vanishes within a hundred tokens, and an answer has three hundred. `warmup` is the number of steps in which
    the rate rises, at every start, since Adam's moments are not kept. With the `baseline` "others" the mean reward of a
    task's other episodes is subtracted, and tasks whose episodes all have the same reward are left out (dynamic
    sampling, arXiv:2503.14476)."""

    rate: float = 3e-6
    head_rate: float = 6e-6
    epochs: int = 1
    steps: int = 4
    budget: int = 32768
    clip: Clip = field(default_factory=Clip)
    value_clip: float | None = None
    entropy: float = 0.0
    gamma: float = 1.0
    lam: float = 0.95
    critic_lam: float = 1.0
    baseline: str = "value"
    largest_norm: float = 1.0
    warmup: int = 10
    bounds: RatioBounds = field(default_factory=RatioBounds)


@dataclass(frozen=True)
class MicroBatch:
    """Some rows of a batch with the tensors that are constant during an update: the trainer's log-probabilities `old`
    and `values` before the update, the `reference`'s log-probabilities (None without KL), advantages, returns, and
    importance weights. `used` marks the actions of rows that `guarded` keeps."""

    rows: PaddedBatch
    used: Tensor
    old: Tensor
    values: Tensor
    reference: Tensor | None
    advantages: Tensor
    returns: Tensor
    weights: Tensor


class Learner:
    """An actor with its optimiser and its KL reference, by default a copy of the actor when the learner is made. Each
    process has a learner; `update` is called in the first process, and makes the other processes call
    `step_together`."""

    def __init__(
        self,
        actor: Actor,
        options: UpdateOptions,
        control: KlControl,
        *,
        reference: Reference | None = None,
        together: ProcessGroup | None = None,
    ) -> None:
        self.actor, self.options, self.control = actor, options, control
        self.together = together or ProcessGroup()
        self.reference = (reference or _as_it_is(actor)) if control.coefficient > 0 else None
        self._parameters = [one for one in actor.parameters() if one.requires_grad]
        self.optimiser = torch.optim.AdamW(
            [
                {"params": [one for one in actor.model.parameters() if one.requires_grad], "lr": options.rate},
                {"params": list(actor.head.parameters()), "lr": options.head_rate},
            ],
            betas=(0.9, 0.95),
            weight_decay=0.0,
        )
        self._schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimiser, lambda step: min(1.0, (step + 1) / max(options.warmup, 1))
        )

    def update(self, trajectories: Sequence[Trajectory], random: Random) -> Metrics:
        """Makes one update from a batch of trajectories; returns metrics. `random` decides the order. Raises
        NotFiniteError; the weights are then those after the last step whose loss and gradients were finite."""
        self.together.tell(UPDATE, trajectories, random)
        return self.step_together(trajectories, random)

    def step_together(self, trajectories: Sequence[Trajectory], random: Random) -> Metrics:
        """Runs the part of an update that every process runs, and returns metrics. All processes call it with the same
        arguments."""
        options = self.options
        trajectories, rewards = self._rewarded(trajectories)
        steps = in_steps([one.length for one in trajectories], options.budget, options.steps, random)
        measured = self._measured(trajectories, rewards, [piece for step in steps for piece in step])
        prepared = self._prepared(trajectories, measured)
        left = iter(prepared)
        groups = [list(islice(left, len(step))) for step in steps]
        figures = [self._step(group) for _ in range(options.epochs) for group in random.sample(groups, len(groups))]
        metrics = {name: sum(one[name] for one in figures) / len(figures) for name in figures[0]}
        metrics |= _of_all(prepared, [guard for _, guard in measured])
        used = sum(int(piece.used.sum()) for piece in prepared)
        if self.reference is not None:
            self.control = self.control.after(metrics["kl_reference"], used)
        return metrics | {
            "kl_coefficient": self.control.coefficient,
            "optimiser_steps": len(figures),
            "episodes_learned": len(trajectories),
            "tokens": sum(one.length for one in trajectories),
            "actions": used,
        }

    def _rewarded(self, trajectories: Sequence[Trajectory]) -> tuple[Sequence[Trajectory], list[float]]:
        """Returns the trajectories to learn from, and their rewards minus the baseline. With the baseline "others",
        trajectories whose reward equals the baseline are left out, unless that is true of all."""
        rewards = [one.reward.value for one in trajectories]
        if self.options.baseline != "others":
            return trajectories, rewards
        rewards = beyond_others(rewards, [one.key for one in trajectories])
        telling = [number for number, reward in enumerate(rewards) if reward] or range(len(rewards))
        return [trajectories[number] for number in telling], [rewards[number] for number in telling]

    def _measured(
        self, trajectories: Sequence[Trajectory], rewards: Sequence[float], every: Sequence[Sequence[int]]
    ) -> list[tuple[MicroBatch, ImportanceWeights]]:
        """Runs the forward pass before the first step. Returns for each micro-batch its tensors, with advantages that
        are not normalised yet, and its importance weights. `every` has the micro-batches as lists of indices into the
        trajectories. Each process computes its share of them and receives the results of all processes."""
        reply_spans = [one.said() for one in trajectories]
        mine, count = self._dealt(every)
        measured = [self._measure([reply_spans[number] for number in numbers], numbers, rewards) for numbers in mine]
        shares = self.together.every([_moved(one, torch.device("cpu")) for one in measured[:count]])
        # Pieces were distributed in turn, so they are collected in turn.
        return [
            _moved(shares[number % len(shares)][number // len(shares)], self.actor.device)
            for number in range(len(every))
        ]

    @torch.no_grad()
    def _measure(
        self, reply_spans: Sequence[ReplySpans], numbers: Sequence[int], every_reward: Sequence[float]
    ) -> tuple[MicroBatch, ImportanceWeights]:
        rows = replace(PaddedBatch.of(reply_spans, range(len(reply_spans)), self.actor.device), numbers=tuple(numbers))
        mine = self.actor(rows.ids, rows.actions)
        reference = self.reference(rows.ids, rows.actions).logprobs if self.reference is not None else None
        rewards = last_action_rewards([every_reward[number] for number in numbers], rows.actions)
        estimate, aim = (
            gae(rewards, mine.values, rows.actions, gamma=self.options.gamma, lam=lam)
            for lam in (self.options.lam, self.options.critic_lam)
        )
        guard = guarded(mine.logprobs, rows.sampled, rows.actions, self.options.bounds)
        used = rows.actions & guard.kept[:, None]
        piece = MicroBatch(
            rows, used, mine.logprobs, mine.values, reference, estimate.advantages, aim.returns, guard.weights
        )
        return piece, guard

    def _dealt(self, items: Sequence[T]) -> tuple[list[T], int]:
        """Returns this process's share of the items, and how many of them count. If the model is sharded, every process
        must make the same number of calls, so the last item may be repeated; the repetition does not count."""
        mine = list(items[self.together.rank :: self.together.count])
        most = -(-len(items) // self.together.count)
        company = list(items[-1:]) * (most - len(mine)) if self.actor.sharded else []
        return mine + company, len(mine)

    def _prepared(
        self, trajectories: Sequence[Trajectory], measured: Sequence[tuple[MicroBatch, ImportanceWeights]]
    ) -> list[MicroBatch]:
        """Returns the micro-batches with advantages normalised over the whole batch. Raises NotFiniteError if the
        importance weights leave out every trajectory."""
        together = torch.cat([piece.advantages[piece.used] for piece, _ in measured])
        if not together.numel():
            cause = f"none of {len(trajectories)} trajectories is as probable to the trainer as to the sampler"
            raise NotFiniteError(cause, "see the ratios in metrics.jsonl; the decoder may have other weights")
        even = normalised(together, torch.ones_like(together, dtype=torch.bool))
        parts = torch.split(even, [int(piece.used.sum()) for piece, _ in measured])
        return [
            replace(piece, advantages=torch.zeros_like(piece.old).masked_scatter(piece.used, part))
            for (piece, _), part in zip(measured, parts, strict=True)
        ]

    def _step(self, group: Sequence[MicroBatch]) -> Metrics:
        """Makes one optimiser step on some micro-batches; the loss is the mean over all their actions. Returns
        metrics."""
        count = max(sum(int(piece.used.sum()) for piece in group), 1)
        self.optimiser.zero_grad(set_to_none=True)
        mine, counted = self._dealt(group)
        sums: Metrics = {}
        for number, piece in enumerate(mine):
            one = piece if number < counted else replace(piece, used=torch.zeros_like(piece.used))
            for name, value in self._learn(one, count).items():
                sums[name] = sums.get(name, 0.0) + value / count
        sums = self.together.summed(sums)
        if not self.actor.sharded:
            self.together.add_gradients(self._parameters)
        norms = self._take_step(sums)
        return sums | norms

    def _learn(self, piece: MicroBatch, count: int) -> Metrics:
        """Computes the gradients of one micro-batch for a loss that is divided by `count` actions; returns the metrics
        as sums over its actions."""
        options = self.options
        now = self.actor(piece.rows.ids, piece.rows.actions)
        policy = policy_loss(now.logprobs, piece.old, piece.advantages, piece.used, options.clip, piece.weights)
        value = value_loss(now.values, piece.returns, piece.used, old=piece.values, clip=options.value_clip)
        spread = now.entropy[piece.used].sum()
        loss = policy.loss + value - options.entropy * spread
        away = torch.zeros((), device=loss.device)
        if piece.reference is not None:
            away = k3(now.logprobs, piece.reference)[piece.used].sum()
            loss = loss + self.control.coefficient * away
        # FSDP averages gradients over the processes; a sum is needed.
        (loss * (self.together.count if self.actor.sharded else 1) / count).backward()
        share = int(piece.used.sum())
        return {
            "policy_loss": float(policy.loss.detach()),
            "value_loss": float(value.detach()),
            "entropy": float(spread.detach()),
            "kl_reference": float(away.detach()),
            "clipped_share": policy.clipped * share,
            "kl_step": policy.kl * share,
        }

    def _take_step(self, sums: Metrics) -> Metrics:
        """Makes the optimiser step; returns the gradient norms. Gradients of actor and head are clipped separately:
        large errors of a new critic must not shrink the actor's steps. Raises NotFiniteError if a metric in `sums` or a
        norm is not finite."""
        norms = {
            name: float(full(torch.nn.utils.clip_grad_norm_(part.parameters(), self.options.largest_norm)))
            for name, part in (("gradient_norm", self.actor.model), ("head_gradient_norm", self.actor.head))
        }
        odd = [name for name, value in (sums | norms).items() if not math.isfinite(value)]
        if odd:
            self.optimiser.zero_grad(set_to_none=True)
            raise NotFiniteError(f"{', '.join(odd)} not finite: training stops before the step", "lower the rate")
        self.optimiser.step()
        self._schedule.step()
        return norms


def _as_it_is(actor: Actor) -> Reference:
    return copy.deepcopy(actor).requires_grad_(False)


def _moved(
    measured: tuple[MicroBatch, ImportanceWeights], device: torch.device
) -> tuple[MicroBatch, ImportanceWeights]:
    piece, guard = measured
    return _on(replace(piece, rows=_on(piece.rows, device)), device), _on(guard, device)


def _on(record: Any, device: torch.device) -> Any:
    """Returns a copy of a record with its tensors moved to the device."""
    tensors = {one.name: getattr(record, one.name) for one in fields(record)}
    return replace(record, **{name: one.to(device) for name, one in tensors.items() if isinstance(one, Tensor)})


def last_action_rewards(values: Sequence[float], actions: Tensor) -> Tensor:
    """Returns a tensor (B, T) with each row's reward at the row's last action and 0 elsewhere. A row without actions is
    0 everywhere."""
    positions = torch.arange(actions.shape[1], device=actions.device)
    last = torch.where(actions, positions, -1).amax(1)
    at_last = (positions == last[:, None]) & actions
    return torch.tensor(values, device=actions.device)[:, None] * at_last


def _of_all(pieces: Sequence[MicroBatch], guards: Sequence[ImportanceWeights]) -> Metrics:
    """Returns the metrics of the whole batch before the update: of values and returns, and of importance weights."""
    values, returns = (
        torch.cat([each[piece.used] for piece, each in zip(pieces, which, strict=True)])
        for which in ([piece.values for piece in pieces], [piece.returns for piece in pieces])
    )
    every = torch.ones_like(values, dtype=torch.bool)
    rows = [len(piece.rows.numbers) for piece in pieces]
    counts = [float(piece.rows.actions.sum()) for piece in pieces]
    return {
        "explained_variance": explained_variance(values, returns, every),
        "value_mean": float(mean_of(values, every)),
        "return_mean": float(mean_of(returns, every)),
        "ratio_largest": max(guard.largest for guard in guards),
        "ratio_capped_share": _mean([guard.capped_share for guard in guards], counts),
        "ratio_left_out_share": _mean([guard.left_out_share for guard in guards], [float(row) for row in rows]),
        "kl_sampler": _mean([guard.kl for guard in guards], counts),
    }


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(one * weight for one, weight in zip(values, weights, strict=True)) / max(sum(weights), 1.0)
