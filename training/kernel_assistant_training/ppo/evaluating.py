"""Evaluates models on held-out tasks, by one greedy attempt and by the best of several attempts for each task."""

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
from kernel_assistant_training.ppo.chat.chat_format import ChatFormat, speech_of
from kernel_assistant_training.ppo.engines.engine import Engine, engine
from kernel_assistant_training.ppo.engines.engine_options import EngineOptions
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.model.base import folder_of
from kernel_assistant_training.ppo.play import PlayOptions
from kernel_assistant_training.ppo.pool.pool import EvaluationPool, PoolOptions
from kernel_assistant_training.ppo.rewards import faster_than_compile, faster_than_eager, highest_tier
from kernel_assistant_training.ppo.rollouts import Rollouts, builders
from kernel_assistant_training.ppo.sources import MixedSource, SourceOptions
from kernel_assistant_training.ppo.store import TrajectoryStore
from kernel_assistant_training.ppo.trajectory import Trajectory

#: Iteration numbers in the store: greedy attempts, and sampled ones.
GREEDY, SAMPLED = 1, 2


@dataclass(frozen=True)
class EvaluateOptions:
    """The options of an evaluation. `models` maps numbers, which identify the results, to models' folders. On each of
    `tasks` held-out tasks a model makes `attempts` attempts: the first is greedy, the others are sampled. Episodes,
    evaluations and logs go to `out`; evaluations in the files `known` are reused. `workers` and `pool` set up the
    evaluation pool; at most `rows` replies are generated at once."""

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
        """Returns a hash (8 hex digits) of the settings that must be equal for episodes to be comparable. Episodes with
        other settings are stored in another folder."""
        asked = {"play": asdict(self.play), "target": self.target, "seed": self.seed, "sources": self.sources.asked()}
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:8]


class ModelScore(Record, frozen=True, kw_only=True):
    """The result of a model on `tasks` held-out tasks; `asked_tasks` were requested, but some could not be evaluated.
    Rates are shares of tasks, and rewards are means. `pass_rate` and `reward` are those of the greedy attempt.
    `best_pass_rate`, `best_reward` and the rates of being 5% faster are those of the best of `attempts` attempts;
    `faster_compile_rate` is None if the reward does not measure `torch.compile`. `sampled_pass_rate` is the share of
    sampled attempts that are correct (None if there are none). `void` is the number of attempts during which the judge
    was lost; these attempts do not count. `time` is when the evaluation ended, in Unix seconds."""

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


def evaluate(options: EvaluateOptions) -> Iterator[ModelScore]:
    """Yields the score of each model when it is done. Episodes that are stored are not played again, and known
    evaluations are reused, also those of other models. Raises UsageError, MissingError, EngineError and other errors of
    the project."""
    chosen = MixedSource(options.target, options.sources).tasks(
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
        most=highest_tier(options.play.scheme, options.play.clock),
        throughput=options.play.profile == "compact",
        known=options.known,
    )
    most = max(len(chosen) * max(options.attempts - 1, 1), 1)
    replies, shape = None, None
    with EvaluationPool(pool) as judges, ExitStack() as generating:
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
            yield ModelScore(
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


def _engine(options: EvaluateOptions, actor: Actor, model: Path, rows: int, speech: ChatFormat) -> Engine:
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
    """Returns the metrics of `ModelScore`, computed from the greedy attempts `first` and the sampled attempts `more`. A
    task counts if at least one attempt is not void (the judge was not lost)."""
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
        "faster_eager_rate": faster_than_eager(best) or 0.0,
        "faster_compile_rate": faster_than_compile(best),
        "reward": _mean([one.value for one in greedy]),
        "best_reward": _mean([one.value for one in best]),
        "sampled_pass_rate": _mean(sampled) if sampled else None,
        "void": sum(one.void for one in (*first, *more)),
    }


def _shape(actor: Actor) -> dict[str, Any]:
    """Returns the model's configuration without its name. Models with equal configurations can share an engine."""
    config: dict[str, Any] = actor.model.config.to_dict()
    return {name: value for name, value in config.items() if name != "_name_or_path"}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)
