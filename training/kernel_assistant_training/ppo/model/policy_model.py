"""Builds the model of a stage with its learner, chat format and engine. Each process of a run builds the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.errors import UsageError
from kernel_assistant_training.ppo.chat.chat_format import ChatFormat, speech_of
from kernel_assistant_training.ppo.engines.engine import DECODE, LOAD, DistributedEngine, Engine, engine
from kernel_assistant_training.ppo.engines.engine_options import EngineOptions
from kernel_assistant_training.ppo.model.actor import WHOLE, Actor
from kernel_assistant_training.ppo.model.base import PolicyModelOptions, folder_of
from kernel_assistant_training.ppo.model.process_group import ProcessGroup
from kernel_assistant_training.ppo.updates.kl import KlControl
from kernel_assistant_training.ppo.updates.update import UPDATE, Learner, UpdateOptions

BEGIN = "begin"


@dataclass(frozen=True)
class PolicyModelSettings:
    """The settings of a `PolicyModel`. `rows` conversations of at most `context` tokens are decoded together; `out` is
    the run's folder. `shard`: whether the weights are divided among the processes."""

    out: Path
    rows: int
    context: int
    model: PolicyModelOptions
    engine: EngineOptions
    update: UpdateOptions
    shard: bool = False


@dataclass(frozen=True)
class PolicyModel:
    """The actor, learner, chat format (`speech`) and engine (`replies`) of a stage. `replies` is None in a process
    without an engine, because only the first process has one."""

    actor: Actor
    learner: Learner
    speech: ChatFormat
    replies: Engine | None

    @classmethod
    def make(
        cls, options: PolicyModelSettings, newest: Path, first: Path, kl: KlControl, together: ProcessGroup
    ) -> PolicyModel:
        """Builds the policy from the model `newest`, with the model `first` as KL reference (not loaded if the KL
        coefficient is 0). Raises UsageError if a model cannot be loaded, and MissingError if a package is missing."""
        newest = folder_of(newest)
        actor = Actor.load(newest, together.device, options.model)
        reference = actor.reference(folder_of(first)) if kl.coefficient else None
        if options.shard:
            shard(actor, together)
        learner = Learner(actor, options.update, kl, reference=reference, together=together)
        speech, replies = speech_of(newest), None
        if together.main or options.engine.kind != "vllm":
            replies = engine(
                actor,
                speech.ends,
                rows=options.rows,
                context=options.context,
                options=options.engine,
                folder=newest,
                serving=options.out,
                together=together,
            )
        return cls(actor, learner, speech, replies)

    def doing(self) -> dict[str, Callable[..., object]]:
        """Returns command → function, for the commands that the first process can send to the other processes."""
        commands: dict[str, Callable[..., object]] = {UPDATE: self.learner.step_together, WHOLE: self.actor.whole}
        if isinstance(self.replies, DistributedEngine):
            commands |= {DECODE: self.replies.share, LOAD: self.replies.load_own}
        return commands


def follow(options: PolicyModelSettings, together: ProcessGroup) -> None:
    """Runs, in every process but the first, the commands that the first process sends, until it sends the end."""
    doing: dict[str, Callable[..., object]] = {}

    def begin(newest: Path, first: Path, kl: KlControl) -> None:
        doing.update(PolicyModel.make(options, newest, first, kl, together).doing())

    doing[BEGIN] = begin
    together.follow(doing)


def shard(actor: Actor, together: ProcessGroup) -> None:
    """Divides parameters, gradients and optimiser moments of each layer among the processes (FSDP2). Changes the actor
    in place; call it before an optimiser is created. Afterwards all processes must call the actor equally often. Raises
    UsageError for an actor with adapters, a single process, or a model that does not name its layers.
    """
    from torch.distributed.fsdp import fully_shard

    if actor.adapters is not None:
        raise UsageError("--shard spreads weights that are trained", "leave it out with --lora: each GPU has the base")
    if together.count < 2:
        raise UsageError("--shard needs several processes", "accelerate launch --num_processes N -m …")
    names = set(actor.model._no_split_modules or ())
    layers = [one for one in actor.model.modules() if type(one).__name__ in names]
    if not layers:
        raise UsageError(f"{type(actor.model).__name__} does not say what its layers are", "leave --shard out")
    for layer in layers:
        fully_shard(layer)
    fully_shard(actor)
    actor.together = together
    actor.sharded = True
