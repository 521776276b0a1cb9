"""Plays and stores episodes of one model, without learning."""

from __future__ import annotations

import sys
from contextlib import closing
from random import Random

import torch

from kernel_assistant_training.nominal import unbounded
from kernel_assistant_training.options.stages import CriticArguments, RftArguments
from kernel_assistant_training.ppo.arguments import engine_of, model_of, play_of, sources_of
from kernel_assistant_training.ppo.chat.chat_format import speech_of
from kernel_assistant_training.ppo.engines.engine import engine
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.model.base import folder_of
from kernel_assistant_training.ppo.pool.pool import EvaluationPool, PoolOptions
from kernel_assistant_training.ppo.rewards import highest_tier
from kernel_assistant_training.ppo.rollouts import Rollouts, builders
from kernel_assistant_training.ppo.sources import MixedSource
from kernel_assistant_training.ppo.store import TrajectoryStore
from kernel_assistant_training.ppo.trajectory import Trajectory

#: The iteration number of these episodes in the store.
ITERATION = 1


def episodes_of(options: CriticArguments | RftArguments) -> list[Trajectory]:
    """Returns the episodes stored in the folders `options.trajectories`. Without such folders, the model plays episodes
    with these options first; they are stored in `options.out`."""
    if options.trajectories:
        return [one for folder in options.trajectories for one in TrajectoryStore(folder).all()]
    return _played(options)


def _played(options: CriticArguments | RftArguments) -> list[Trajectory]:
    """Plays episodes and returns them. The tasks are `options.prompts` tasks, the same for every stage with the same
    seed, or, if that is 0, `options.tasks` random tasks. Episodes that are stored already are not played again."""
    there, play = MixedSource(options.target, sources_of(options)), play_of(options)
    chosen = (
        there.prompts(options.prompts, options.seed)
        if options.prompts
        else there.tasks(options.tasks, Random(f"play {options.seed}"))
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    base, store = folder_of(options.base), TrajectoryStore(options.out)
    actor, speech = Actor.load(base, device, model_of(options)), speech_of(base)
    most = min(options.rows, len(chosen) * options.episodes)
    asked = engine_of(options)
    replies = engine(
        actor, speech.ends, rows=most, context=play.context, options=asked, folder=base, serving=options.out
    )
    pool = PoolOptions(
        target=options.target,
        out=options.out,
        cache=unbounded(options.target, options.out) if play.clock == "nominal" else options.out,
        python=sys.executable,
        workers=options.workers,
        pool=options.pool,
        builders=builders(),
        most=highest_tier(play.scheme, play.clock),
        throughput=play.profile == "compact",
        known=options.known,
    )
    with EvaluationPool(pool) as judges, closing(replies):
        rollouts = Rollouts(judges, replies, speech, options.seed)
        played = rollouts.play(chosen, options.episodes, ITERATION, play, store)
    store.close()
    return played.trajectories
