"""Plays and stores episodes of one model, without learning."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from random import Random

import torch

from kernel_assistant_training.nominal import unbounded
from kernel_assistant_training.options.stages import CriticArguments, RftArguments
from kernel_assistant_training.ppo.arguments import engine_of, model_of, play_of, sources_of
from kernel_assistant_training.ppo.chat.chat_format import speech_of
from kernel_assistant_training.ppo.engines.engine import engine
from kernel_assistant_training.ppo.engines.engine_options import EngineOptions
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.model.base import PolicyModelOptions, folder_of
from kernel_assistant_training.ppo.play import PlayOptions
from kernel_assistant_training.ppo.pool.pool import EvaluationPool, PoolOptions
from kernel_assistant_training.ppo.rewards import highest_tier
from kernel_assistant_training.ppo.rollouts import Rollouts, builders
from kernel_assistant_training.ppo.sources import MixedSource, SourceOptions
from kernel_assistant_training.ppo.store import TrajectoryStore
from kernel_assistant_training.ppo.trajectory import Trajectory

#: The iteration number of these episodes in the store.
ITERATION = 1


def play_once(
    base: Path,
    out: Path,
    *,
    target: str,
    tasks: int,
    episodes: int,
    play: PlayOptions,
    seed: int,
    workers: int,
    rows: int,
    pool: tuple[str, ...] = (),
    known: tuple[Path, ...] = (),
    prompts: int = 0,
    sources: SourceOptions | None = None,
    cache: Path | None = None,
    python: str = sys.executable,
    model: PolicyModelOptions | None = None,
    engine_options: EngineOptions | None = None,
) -> list[Trajectory]:
    """Plays `episodes` episodes of each of `tasks` tasks, or of the `prompts` that other stages play. Episodes stored
    in `out` are not played again.
    """
    there = MixedSource(target, sources or SourceOptions())
    chosen = there.prompts(prompts, seed) if prompts else there.tasks(tasks, Random(f"play {seed}"))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    base, store = folder_of(base), TrajectoryStore(out)
    actor, speech = Actor.load(base, device, model), speech_of(base)
    most = min(rows, len(chosen) * episodes)
    replies = engine(
        actor, speech.ends, rows=most, context=play.context, options=engine_options, folder=base, serving=out
    )
    options = PoolOptions(
        target=target,
        out=out,
        cache=unbounded(target, out) if play.clock == "nominal" else cache or out,
        python=python,
        workers=workers,
        pool=pool,
        builders=builders(),
        most=highest_tier(play.scheme, play.clock),
        throughput=play.profile == "compact",
        known=known,
    )
    with EvaluationPool(options) as judges, closing(replies):
        played = Rollouts(judges, replies, speech, seed).play(chosen, episodes, ITERATION, play, store)
    store.close()
    return played.trajectories


def episodes_of(options: CriticArguments | RftArguments) -> list[Trajectory]:
    """The episodes in the folders `trajectories`; without any, play them with these options."""
    if options.trajectories:
        return [one for folder in options.trajectories for one in TrajectoryStore(folder).all()]
    return play_once(
        options.base,
        options.out,
        target=options.target,
        tasks=options.tasks,
        episodes=options.episodes,
        play=play_of(options),
        seed=options.seed,
        workers=options.workers,
        pool=options.pool,
        known=options.known,
        prompts=options.prompts,
        rows=options.rows,
        sources=sources_of(options),
        model=model_of(options),
        engine_options=engine_of(options),
    )
