"""The options of the stages that train, evaluate or export a model. The docstring of each class is its help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kernel_assistant_training.options.checkpoints import WORDS
from kernel_assistant_training.options.command_line import argument, option
from kernel_assistant_training.options.groups import (
    Clock,
    EngineArguments,
    PairArguments,
    PlayArguments,
    PoolArguments,
    Profile,
    Scheme,
    SourceArguments,
    Target,
    TrajectoryArguments,
    TuningArguments,
)
from kernel_assistant_training.reply import CONTEXT, MOST_REPLY

#: Bytes of an exported model: files that the repository tracks must be small.
LARGEST = 15_000_000


@dataclass(frozen=True)
class PretrainOptions(PairArguments):
    """Train a model on pairs of a task and the generator's text that nobody ran, until the time is over.

    Leaves in OUT: model/ (and middle/, from half of the time on), metrics.jsonl, checkpoint.pt (each minute, for
    --resume) and answers.jsonl (greedy answers to held-out tasks).
    """

    out: Path = option(help="Folder of the run.")
    seconds: float = option(480.0, "Seconds of training, over all starts.")
    steps: int = option(0, "Steps at most; 0: no limit but the time.")
    shape: Literal["shipped", "small", "tiny"] = option("shipped", "Shape of the model.")
    rows: int = option(64, "Rows of a step.")
    length: int = option(2048, "Tokens of a row.")
    processes: int = option(14, "Processes that make conversations.")
    keep: int = option(400_000, "Conversations that are kept to draw from.")
    optimiser: Literal["muon", "adamw"] = option("muon", "Optimiser; adamw needs half the rate.")
    rate: float = option(4e-3, "Learning rate.")
    warm_up: int = option(200, "Steps in which the rate rises.")
    decay: float = option(0.6, "Share of the time in which the rate falls to zero.")
    prompt_weight: float = option(0.1, "Weight of the prompt's tokens in the loss.")
    steady: bool = option(False, "Rows that are the same in the same order, whenever it is run.")
    attention: Literal["flex", "dense"] = option("flex", "Attention of the layers.")
    held_out: int = option(200, "Tasks that training never draws, answered at the end.")
    seed: int = option(0, "Seed of weights and conversations.")
    checkpoint_seconds: float = option(60.0, "Seconds between checkpoints.")
    resume: bool = option(False, "Continuation of OUT/checkpoint.pt, if it is there.")
    base: Path | None = option(None, "Model with the initial weights; without it they are random.", metavar="FOLDER")
    sources: tuple[Callable[[int], Iterator[Any]], ...] = field(default=(), repr=False, kw_only=True)


@dataclass(frozen=True)
class SftArguments(TuningArguments, PairArguments):
    """Fine-tune a model on episodes, and on pairs that nobody ran, so that first answers do not get worse."""

    episodes: tuple[Path, ...] = option(help="Files of JSON lines with messages, .gz and .xz too.", metavar="FILE")
    pairs_share: float = option(0.2, "Share of pairs among the examples.")
    processes: int = option(1, "Processes that turn conversations into tokens.")


@dataclass(frozen=True)
class RftArguments(TuningArguments, TrajectoryArguments, PlayArguments):
    """Let a model play, and fine-tune it on its own episodes: those with a reward above 0, without loops and without
    calls that cannot be read."""

    most_each: int = option(4, "Episodes of one task that are learned.")
    steps: int = option(-1, "Steps at most; -1: as many as the epochs have.", flag="--max-steps")
    rate: float = option(1e-4, "Learning rate.")


@dataclass(frozen=True)
class CriticArguments(TrajectoryArguments, PlayArguments):
    """Train the value head on the rewards of episodes that the model plays. The model stays as it is."""

    epochs: int = option(10, "Passes over the episodes.")
    rate: float = option(1e-3, "Learning rate of the value head.")
    budget: int = option(32768, "Padded tokens of one pass.")
    lam: float = option(1.0, "Lambda of the targets (GAE).")
    share: float = option(0.2, "Share of the tasks that is kept aside.")


@dataclass(frozen=True)
class PpoAgentArguments(PlayArguments):
    """PPO with several turns an episode. BASE is best a folder of `train critic`, so that values are there from the
    first iteration on."""

    iterations: int = option(100, "Iterations in all; a second start may ask for more.")
    curriculum: float = option(
        0.0, "Rate of passed episodes at which tasks of one more operator begin; 0: all do at once.", metavar="RATE"
    )
    held_out: int = option(16, "Tasks that training never draws, played now and then.")
    held_out_episodes: int = option(0, "Episodes of each of these, sampled; 0: one, greedily.")
    evaluate_every: int = option(10, "Iterations between these evaluations.")
    keep_every: int = option(0, "Iterations between checkpoints that are kept; 0: the newest are.")
    rate: float = option(3e-6, "Learning rate of the actor.")
    head_rate: float | None = option(None, "Learning rate of the value head.", shown="twice the actor's")
    warm_up: int = option(10, "Steps in which the rates rise, at every start.")
    epochs: int = option(1, "Passes over an iteration's episodes.")
    steps: int = option(4, "Optimiser steps of an epoch.")
    budget: int = option(32768, "Padded tokens of one pass.")
    lam: float = option(0.95, "Lambda of the advantages (GAE).")
    baseline: Literal["value", "others"] = option(
        "value", "Baseline of rewards; others: the mean of the task's other episodes."
    )
    timed: float = option(
        1.0, "Share of the tasks whose kernels are timed, by lot; those of others earn 1 at most.", metavar="SHARE"
    )
    kl: float = option(0.01, "Coefficient of the KL divergence; 0: none.")
    kl_target: float | None = option(None, "Nats per token that the coefficient aims at.")
    shard: bool = option(False, "Weights in parts, one for each process (FSDP).")


@dataclass(frozen=True)
class PpoSingleArguments(PpoAgentArguments):
    """PPO with one reply an episode."""

    turns: int = option(1, "Replies of an episode.")


@dataclass(frozen=True)
class EvalArguments(EngineArguments, PoolArguments, SourceArguments):
    """Evaluate models on held-out tasks: checkpoints of a run of PPO as it played, or any models' folders.

    Each gets a line in evaluations_held_out.jsonl; one that is there for the same question is not made again.
    """

    run: Path | None = option(None, "Folder of ppo-single or ppo-agent.")
    checkpoint: str = option("newest", f"Checkpoint of --run: a number, or {', '.join(WORDS)}.")
    base: tuple[Path, ...] = option((), "Models, instead of --run.", metavar="FOLDER")
    out: Path | None = option(None, "Folder of the results of --base; it is continued.")
    tasks: int = option(64, "Tasks of the held-out split.")
    attempts: int = option(8, "Attempts at each task: one greedy, the others sampled.")
    target: Target | None = option(None, "Device kind of the kernels.", shown="that of --run, else cuda")
    reward: Scheme | None = option(None, "Scheme of rewards.", shown="that of --run, else milestone")
    profile: Profile | None = option(None, "Prompts and tools.", shown="those of --run, else compact")
    clock: Clock | None = option(None, "Clock of the times.", shown="that of --run, else measured")
    turns: int | None = option(None, "Replies of an episode.", shown="those of --run, else 1")
    reply: int | None = option(None, "Tokens of a reply.", shown=f"those of --run, else {MOST_REPLY}")
    context: int | None = option(None, "Tokens of a conversation.", shown=f"those of --run, else {CONTEXT}")
    seed: int = option(0, "Seed of the sampled attempts.")


@dataclass(frozen=True)
class ExportArguments:
    """Write a model as one 8-bit GGUF file and check that it reads back the same, or as a Hugging Face folder with
    adapters merged. `train export --run RUN OUT` writes both into OUT."""

    paths: tuple[Path, ...] = argument("[FOLDER] FILE")
    run: Path | None = option(None, "Folder of a run of ppo-single or ppo-agent, instead of FOLDER.")
    checkpoint: str = option("newest", "Checkpoint of --run: a number, newest or first.")
    form: Literal["gguf", "folder", "both"] | None = option(
        None, "Form: one file of 8 bits, a Hugging Face folder, or a folder with both.", shown="gguf; both with --run"
    )
    largest: int = option(LARGEST, "Bytes that the file may have.")
