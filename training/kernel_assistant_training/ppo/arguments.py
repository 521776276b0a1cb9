"""Converts the options of the command line to the options of the parts of the PPO code."""

from __future__ import annotations

import shlex
from pathlib import Path

from kernel_assistant.errors import UsageError
from kernel_assistant_training.options.groups import EngineArguments, ModelArguments, PlayArguments, SourceArguments
from kernel_assistant_training.options.stages import PpoAgentArguments
from kernel_assistant_training.ppo.engines.engine_options import EngineOptions
from kernel_assistant_training.ppo.model.base import PolicyModelOptions
from kernel_assistant_training.ppo.play import PlayOptions
from kernel_assistant_training.ppo.sources import SourceOptions
from kernel_assistant_training.ppo.stage import StageOptions
from kernel_assistant_training.ppo.updates.kl import KlControl
from kernel_assistant_training.ppo.updates.update import UpdateOptions
from kernel_assistant_training.synth.narrow import Narrow


def options_of(stage: str, arguments: PpoAgentArguments) -> StageOptions:
    return StageOptions(
        stage=stage,
        base=arguments.base,
        out=arguments.out,
        target=arguments.target,
        iterations=arguments.iterations,
        tasks=arguments.tasks,
        episodes=arguments.episodes,
        seed=arguments.seed,
        curriculum=arguments.curriculum,
        prompts=arguments.prompts,
        held_out=arguments.held_out,
        held_out_episodes=arguments.held_out_episodes,
        evaluate_every=arguments.evaluate_every,
        workers=arguments.workers,
        pool=arguments.pool,
        known=arguments.known,
        rows=arguments.rows,
        keep_every=arguments.keep_every,
        sources=sources_of(arguments),
        play=play_of(arguments),
        timed=arguments.timed,
        update=UpdateOptions(
            rate=arguments.rate,
            head_rate=2 * arguments.rate if arguments.head_rate is None else arguments.head_rate,
            warmup=arguments.warm_up,
            epochs=arguments.epochs,
            steps=arguments.steps,
            budget=arguments.budget,
            lam=arguments.lam,
            baseline=arguments.baseline,
        ),
        kl=KlControl(arguments.kl, arguments.kl_target),
        model=model_of(arguments),
        engine=engine_of(arguments),
        shard=arguments.shard,
    )


def play_of(arguments: PlayArguments) -> PlayOptions:
    return PlayOptions(
        scheme=arguments.reward,
        turns=arguments.turns,
        reply=arguments.reply,
        context=arguments.context,
        clock=arguments.clock,
        profile=arguments.profile,
    )


def sources_of(arguments: SourceArguments) -> SourceOptions:
    """Returns the options of the task sources. Raises UsageError for an invalid weight."""
    narrow = Narrow.of(arguments.only, arguments.level)
    shards = tuple(_weighted(word) for word in arguments.shards)
    return SourceOptions(arguments.synthesis, arguments.traced, shards, narrow)


def model_of(arguments: ModelArguments) -> PolicyModelOptions:
    return PolicyModelOptions(arguments.lora, arguments.checkpointing)


def engine_of(arguments: EngineArguments) -> EngineOptions:
    return EngineOptions(arguments.engine, tuple(shlex.split(arguments.vllm_arguments)), arguments.vllm_share)


def _weighted(word: str) -> tuple[Path, float]:
    """Parses an argument `DIR` or `DIR=WEIGHT`; returns the folder and its weight (by default 1). A folder's name may
    contain `=`. Raises UsageError for an invalid weight."""
    folder, sign, weight = word.rpartition("=")
    if not sign or Path(word).is_dir():
        return Path(word), 1.0
    try:
        return Path(folder), float(weight)
    except ValueError as error:
        raise UsageError(f"--shards {word}: {weight!r} is no weight", "use DIR, or DIR=2") from error
