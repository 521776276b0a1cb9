"""What both stages of PPO are asked for on the command line."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernel_assistant.errors import UsageError
from kernel_assistant_training.nominal import CLOCKS
from kernel_assistant_training.ppo.kl import KlControl
from kernel_assistant_training.ppo.model_arguments import add_engine, add_model, engine_of, model_of
from kernel_assistant_training.ppo.play import PlayOptions
from kernel_assistant_training.ppo.pool_places import EXAMPLES, checked
from kernel_assistant_training.ppo.rewards import SCHEMES
from kernel_assistant_training.ppo.sources import SourceOptions
from kernel_assistant_training.ppo.stage import StageOptions
from kernel_assistant_training.ppo.update import BASELINES, UpdateOptions
from kernel_assistant_training.reply import MOST_REPLY
from kernel_assistant_training.source import TARGETS
from kernel_assistant_training.synth.narrow import add_narrow, narrow_of
from kernel_assistant_training.tokenizer import CONTEXT


def parser_of(stage: str, about: str | None, *, turns: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"kernel_assistant_training {stage}", description=about)
    add_play(parser, turns)
    parser.add_argument("--iterations", type=int, default=100, help="in all; a second start may ask for more")
    parser.add_argument(
        "--curriculum",
        type=float,
        default=0.0,
        metavar="RATE",
        help="pass rate at which a further operator opens; 0: all",
    )
    parser.add_argument("--held-out", type=int, default=16, help="tasks that are played greedily now and then")
    parser.add_argument(
        "--held-out-episodes", type=int, default=0, help="of each held-out task, sampled; 0: one, greedily"
    )
    parser.add_argument("--evaluate-every", type=int, default=10, help="iterations between these")
    parser.add_argument(
        "--keep-every", type=int, default=0, help="keep a checkpoint each so many iterations; 0: the newest"
    )
    parser.add_argument("--rate", type=float, default=3e-6, help="of the actor")
    parser.add_argument("--head-rate", type=float, default=None, help="of the value head; twice the actor's")
    parser.add_argument("--warm-up", type=int, default=10, help="steps in which rates rise, at every start")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4, help="optimiser steps an epoch")
    parser.add_argument("--budget", type=int, default=32768, help="padded tokens in one pass")
    parser.add_argument("--lam", type=float, default=0.95)
    parser.add_argument(
        "--baseline", choices=BASELINES, default="value", help="others: rewards beyond a task's other episodes"
    )
    parser.add_argument("--kl", type=float, default=0.01, help="coefficient, 0 for none")
    parser.add_argument("--kl-target", type=float, default=None, help="nats a token; the coefficient follows it")
    parser.add_argument("--shard", action="store_true", help="weights in parts, of several processes (FSDP)")
    return parser


def add_play(parser: argparse.ArgumentParser, turns: int) -> None:
    """What playing asks for."""
    parser.add_argument("--base", type=Path, required=True, help="a model's folder, or its name on the hub")
    add_model(parser)
    add_engine(parser)
    parser.add_argument("--out", type=Path, required=True, help="the run's folder; one that is there goes on")
    parser.add_argument("--target", choices=TARGETS, default="cuda")
    parser.add_argument("--reward", choices=sorted(SCHEMES), default="milestone")
    parser.add_argument("--tasks", type=int, default=32, help="an iteration")
    parser.add_argument("--prompts", type=int, default=0, help="the same so many tasks each time, in their place")
    add_sources(parser)
    parser.add_argument("--episodes", type=int, default=8, help="of each task")
    parser.add_argument("--turns", type=int, default=turns, help="replies of an episode")
    parser.add_argument("--reply", type=int, default=MOST_REPLY, help="tokens of a reply")
    parser.add_argument("--context", type=int, default=CONTEXT, help="tokens of a conversation")
    parser.add_argument("--workers", type=int, default=1, help="processes that judge")
    add_pool(parser)
    parser.add_argument(
        "--known", type=Path, nargs="*", default=[], metavar="FILE", help="evaluations.jsonl of earlier runs"
    )
    parser.add_argument("--rows", type=int, default=256, help="conversations that are decoded at once")
    parser.add_argument("--clock", choices=CLOCKS, default="measured", help="nominal: the same times on any machine")
    parser.add_argument("--seed", type=int, default=0)


def add_pool(parser: argparse.ArgumentParser) -> None:
    """Where candidates are judged: docs/evaluation_pool.md."""
    parser.add_argument(
        "--pool",
        action="extend",
        nargs="+",
        type=checked,
        default=[],
        metavar="PLACE",
        help=f"of workers, instead: {EXAMPLES}",
    )


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Where tasks come from."""
    parser.add_argument(
        "--shards", action="extend", nargs="+", default=[], metavar="DIR[=WEIGHT]", help="tasks of `train synth`"
    )
    parser.add_argument(
        "--synthesis", type=float, default=1.0, metavar="WEIGHT", help="of synthesised tasks, beside shards"
    )
    add_narrow(parser)


def options_of(stage: str, found: argparse.Namespace) -> StageOptions:
    return StageOptions(
        stage=stage,
        base=found.base,
        out=found.out,
        target=found.target,
        iterations=found.iterations,
        tasks=found.tasks,
        episodes=found.episodes,
        seed=found.seed,
        curriculum=found.curriculum,
        prompts=found.prompts,
        held_out=found.held_out,
        held_out_episodes=found.held_out_episodes,
        evaluate_every=found.evaluate_every,
        workers=found.workers,
        pool=tuple(found.pool),
        known=tuple(found.known),
        rows=found.rows,
        keep_every=found.keep_every,
        sources=sources_of(found),
        play=play_of(found),
        update=UpdateOptions(
            rate=found.rate,
            head_rate=2 * found.rate if found.head_rate is None else found.head_rate,
            warmup=found.warm_up,
            epochs=found.epochs,
            steps=found.steps,
            budget=found.budget,
            lam=found.lam,
            baseline=found.baseline,
        ),
        kl=KlControl(found.kl, found.kl_target),
        model=model_of(found),
        engine=engine_of(found),
        shard=found.shard,
    )


def play_of(found: argparse.Namespace) -> PlayOptions:
    return PlayOptions(
        scheme=found.reward,
        turns=found.turns,
        reply=found.reply,
        context=found.context,
        clock=found.clock,
        profile=found.profile,
    )


def sources_of(found: argparse.Namespace) -> SourceOptions:
    """Raises UsageError for a weight that is none."""
    return SourceOptions(found.synthesis, tuple(_weighted(word) for word in found.shards), narrow_of(found))


def _weighted(word: str) -> tuple[Path, float]:
    """`DIR`, or `DIR=WEIGHT`; a folder may have = in its name."""
    folder, sign, weight = word.rpartition("=")
    if not sign or Path(word).is_dir():
        return Path(word), 1.0
    try:
        return Path(folder), float(weight)
    except ValueError as error:
        raise UsageError(f"--shards {word}: {weight!r} is no weight", "use DIR, or DIR=2") from error
