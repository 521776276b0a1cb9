"""Options that several stages share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernel_assistant_training.options.addresses import EXAMPLES, checked
from kernel_assistant_training.options.command_line import option
from kernel_assistant_training.reply import CONTEXT, MOST_REPLY

# Choices and defaults of code that takes long to load are repeated here; a test compares them.
Target = Literal["cuda", "cpu"]
Clock = Literal["measured", "nominal"]
Profile = Literal["full", "compact"]
Scheme = Literal["correctness", "milestone", "ratio", "weighted"]
#: Most steps of a task of the synthesis.
MOST_STEPS = 5
#: What generates replies.
Engine = Literal["auto", "decoder", "transformers", "vllm"]
#: Which class trains in fine-tuning.
TrainerName = Literal["trl", "transformers"]


@dataclass(frozen=True)
class NarrowArguments:
    only: str = option("", "Steps or families that tasks are made of; all without it.", metavar="NAME,...")
    level: int = option(MOST_STEPS, "Most steps of a task.")


@dataclass(frozen=True)
class PairArguments(NarrowArguments):
    """Pairs of a task and the generator's text that nobody ran."""

    target: tuple[Target, ...] = option(("cuda", "cpu"), "Devices whose kernels are learned.")
    compose_share: float = option(0.03, "Share of the pairs that are compositions of tasks.")
    traced_share: float = option(0.4, "Share of the others about traced operators; none with --only or --level.")
    mistakes: str = option("", "Mistakes that are put into answers on purpose.", metavar="FAULT=SHARE,...")


@dataclass(frozen=True)
class SourceArguments(NarrowArguments):
    shards: tuple[str, ...] = option((), "Folders of tasks that `train synth` made.", metavar="DIR[=WEIGHT]")
    synthesis: float = option(1.0, "Weight of synthesised tasks beside shards.", metavar="WEIGHT")
    traced: float = option(0.0, "Weight of tasks that were traced from PyTorch's operators.", metavar="WEIGHT")


@dataclass(frozen=True)
class ModelArguments:
    lora: int = option(0, "Rank of the adapters that are trained; 0: all weights are.", metavar="RANK")
    checkpointing: bool | None = option(
        None, "Memory for time: only inputs of layers are kept for the backward pass.", shown="from 1 B parameters on"
    )


@dataclass(frozen=True)
class EngineArguments:
    engine: Engine = option("auto", "Engine that generates.")
    vllm_arguments: str = option("", "Arguments of vLLM's server, as in one shell word.", metavar="WORDS")
    vllm_share: float | None = option(None, "Share of the GPU's memory that vLLM has while it generates.")


@dataclass(frozen=True)
class PoolArguments:
    """Where candidates are evaluated: docs/evaluation_pool.md."""

    workers: int = option(1, "Processes that judge.")
    pool: tuple[str, ...] = option((), f"Machines that judge instead: {EXAMPLES}.", metavar="PLACE", type=checked)
    rows: int = option(256, "Conversations that are decoded at once.")


@dataclass(frozen=True)
class PlayArguments(ModelArguments, EngineArguments, PoolArguments, SourceArguments):
    """How a model plays episodes."""

    base: Path = option(help="Folder of the model, or its name on the hub.")
    out: Path = option(help="Folder of the run; one that is there goes on.")
    target: Target = option("cuda", "Device kind of the kernels.")
    reward: Scheme = option("milestone", "Scheme of rewards.")
    profile: Profile = option("compact", "Prompts and tools.")
    tasks: int = option(32, "Tasks of an iteration.")
    prompts: int = option(0, "Tasks that are the same in each iteration, instead of --tasks new ones.")
    episodes: int = option(8, "Episodes of each task.")
    turns: int = option(8, "Replies of an episode.")
    reply: int = option(MOST_REPLY, "Tokens of a reply.")
    context: int = option(CONTEXT, "Tokens of a conversation.")
    known: tuple[Path, ...] = option((), "Files evaluations.jsonl of earlier runs.", metavar="FILE", empty=True)
    clock: Clock = option("measured", "Clock of the times; nominal: the same on any machine.")
    seed: int = option(0, "Seed of tasks and samples.")


@dataclass(frozen=True)
class TuningArguments:
    """How TRL's trainer, or the one of transformers below it, fine-tunes."""

    base: Path = option(help="Folder of the model that is trained.")
    out: Path = option(help="Folder of the run; one that is there goes on.")
    trainer: TrainerName = option("trl", "Trainer; transformers needs accelerate alone.")
    epochs: float = option(2.0, "Passes over the examples.")
    steps: int = option(-1, "Steps at most; -1: as many as the epochs have.")
    seconds: float = option(0.0, "Seconds of training at most; the rate falls by this clock. 0: no limit.")
    batch: int = option(32, "Examples of a batch.")
    accumulate: int = option(1, "Batches of an optimiser step.")
    rate: float = option(3e-4, "Learning rate.")
    seed: int = option(0, "Seed of what is drawn, and of the order.")
    checkpoint_seconds: float = option(60.0, "Seconds between checkpoints, of which one is kept.")


@dataclass(frozen=True)
class TrajectoryArguments:
    trajectories: tuple[Path, ...] = option((), "Folders of runs whose episodes are taken instead.", empty=True)
