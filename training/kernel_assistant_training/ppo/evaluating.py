"""What models come to on held-out tasks: one greedy attempt, and the best of several."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import torch

from kernel_assistant.records.codec import Record
from kernel_assistant_training.nominal import unbounded
from kernel_assistant_training.ppo.actor import Actor
from kernel_assistant_training.ppo.base import folder_of
from kernel_assistant_training.ppo.engine import Engine, EngineOptions, engine
from kernel_assistant_training.ppo.play import PlayOptions
from kernel_assistant_training.ppo.pool import Pool, PoolOptions
from kernel_assistant_training.ppo.rewards import FASTER, faster_than_compile, needs_full
from kernel_assistant_training.ppo.rollouts import Rollouts, builders
from kernel_assistant_training.ppo.sources import SourceOptions, Sources
from kernel_assistant_training.ppo.speech import Speech, speech_of
from kernel_assistant_training.ppo.store import TrajectoryStore
from kernel_assistant_training.ppo.trajectory import Trajectory

#: Numbers of the stores' files: the greedy attempts, and those that are sampled.
GREEDY, SAMPLED = 1, 2


@dataclass(frozen=True)
class EvaluateOptions:
    """`models` by the number that their lines have. `attempts` at each of `tasks` held-out tasks: the first greedy, the
    others as the policy samples. Episodes, evaluations and logs lie in `out`; what is in the files `known` is not
    judged again."""

    models: Mapping[int, Path]
    out: Path
    target: str
    python: str
    tasks: int = 64
    attempts: int = 8
    seed: int = 0
    workers: int = 1
    pool: tuple[str, ...] = ()
    rows: int = 256
    cache: Path | None = None
    known: tuple[Path, ...] = ()
    sources: SourceOptions = field(default_factory=SourceOptions)
    play: PlayOptions = field(default_factory=PlayOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)

    def kind(self) -> str:
        """Of the episodes that can be compared: what was played otherwise lies elsewhere."""
        asked = {"play": asdict(self.play), "target": self.target, "seed": self.seed, "sources": self.sources.asked()}
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:8]


class Evaluated(Record, frozen=True, kw_only=True):
    """A model on `tasks` held-out tasks, of `asked_tasks`: the others could not be judged. Rates are shares of tasks,
    rewards means: `pass_rate` and `reward` are of the first, greedy attempt, `best_…` and the rates of being 5% faster
    of the best of `attempts`, None where the reward leaves `torch.compile` unmeasured; `sampled_pass_rate` is the share
    of the other attempts. An attempt whose judge was lost counts as none, `void` is the number of these."""

    checkpoint: int
    model: str
    kind: str
    target: str
    scheme: str
    asked_tasks: int
    tasks: int
    attempts: int
    pass_rate: float
    best_pass_rate: float
    faster_eager_rate: float
    faster_compile_rate: float | None
    reward: float
    best_reward: float
    sampled_pass_rate: float | None
    void: int
    seconds: float
    time: float


def evaluate(options: EvaluateOptions) -> Iterator[Evaluated]:
    """Each model's, as it is done. What was played before is not played again, what was judged before is looked up,
    also across models. Raises the project's errors."""
    chosen = Sources(options.target, options.sources).tasks(
        options.tasks, Random(f"evaluation {options.seed}"), wanted="held_out"
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pool = PoolOptions(
        target=options.target,
        out=options.out,
        cache=unbounded(options.target, options.out)
        if options.play.clock == "nominal"
        else options.cache or options.out,
        python=options.python,
        workers=options.workers,
        pool=options.pool,
        builders=builders(),
        quick_only=not needs_full(options.play.scheme),
        known=options.known,
    )
    most = max(len(chosen) * max(options.attempts - 1, 1), 1)
    replies, shape = None, None
    with Pool(pool) as judges, ExitStack() as generating:
        for number, named in options.models.items():
            began, model = time.monotonic(), folder_of(named)
            actor = Actor.load(model, device)
            if replies is None or shape != _shape(actor):
                speech, rows = speech_of(model), min(options.rows, most)
                generating.close()
                replies, shape = _engine(options, actor, model, rows, speech), _shape(actor)
                generating.enter_context(closing(replies))
            else:
                replies.load(actor)
            rollouts = Rollouts(judges, replies, speech, options.seed)
            store = TrajectoryStore(options.out / f"model-{number:06}-{options.kind()}")
            first = rollouts.play(chosen, 1, GREEDY, replace(options.play, temperature=0.0), store)
            more = rollouts.play(chosen, options.attempts - 1, SAMPLED, options.play, store)
            store.close()
            figures = figures_of(first.trajectories, more.trajectories)
            yield Evaluated(
                checkpoint=number,
                model=named.name,
                kind=options.kind(),
                target=options.target,
                scheme=options.play.scheme,
                asked_tasks=options.tasks,
                attempts=options.attempts,
                seconds=round(time.monotonic() - began, 3),
                time=round(time.time(), 3),
                **figures,
            )


def _engine(options: EvaluateOptions, actor: Actor, model: Path, rows: int, speech: Speech) -> Engine:
    return engine(
        actor,
        speech.ends,
        rows=rows,
        context=options.play.context,
        options=options.engine,
        folder=model,
        serving=options.out,
    )


def figures_of(first: Sequence[Trajectory], more: Sequence[Trajectory]) -> dict[str, Any]:
    """Of the greedy attempts and the others, those of `Evaluated`. A task counts whose judge was there for one."""
    played: dict[str, list[Trajectory]] = {}
    for one in (*first, *more):
        if not one.void:
            played.setdefault(one.key, []).append(one)
    best = [max(some, key=lambda one: one.reward.value).reward for some in played.values()]
    greedy = [one.reward for one in first if not one.void]
    sampled = [one.reward.correct for one in more if not one.void]
    return {
        "tasks": len(played),
        "pass_rate": _mean([one.correct for one in greedy]),
        "best_pass_rate": _mean([one.correct for one in best]),
        "faster_eager_rate": _mean([one.correct and one.speedup_vs_eager >= FASTER for one in best]),
        "faster_compile_rate": faster_than_compile(best),
        "reward": _mean([one.value for one in greedy]),
        "best_reward": _mean([one.value for one in best]),
        "sampled_pass_rate": _mean(sampled) if sampled else None,
        "void": sum(one.void for one in (*first, *more)),
    }


def _shape(actor: Actor) -> dict[str, Any]:
    """Of the model: weights of the same shape need no new decoder."""
    found: dict[str, Any] = actor.model.config.to_dict()
    return {name: value for name, value in found.items() if name != "_name_or_path"}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)
