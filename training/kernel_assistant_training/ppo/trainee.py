"""The model of a stage with what it learns by and speaks with, made alike in each process of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant_training.ppo.actor import WHOLE, Actor
from kernel_assistant_training.ppo.base import ModelOptions, folder_of
from kernel_assistant_training.ppo.engine import DECODE, LOAD, DealtEngine, Engine, EngineOptions, engine
from kernel_assistant_training.ppo.kl import KlControl
from kernel_assistant_training.ppo.sharding import shard
from kernel_assistant_training.ppo.speech import Speech, speech_of
from kernel_assistant_training.ppo.together import Together
from kernel_assistant_training.ppo.update import UPDATE, Learner, UpdateOptions

BEGIN = "begin"


@dataclass(frozen=True)
class TraineeOptions:
    """`rows` conversations of `context` tokens are decoded at once; `out` is the run's folder."""

    out: Path
    rows: int
    context: int
    model: ModelOptions
    engine: EngineOptions
    update: UpdateOptions
    shard: bool = False


@dataclass(frozen=True)
class Trainee:
    """Without `replies` in a process whose first has a server to generate."""

    actor: Actor
    learner: Learner
    speech: Speech
    replies: Engine | None

    @classmethod
    def make(cls, options: TraineeOptions, newest: Path, first: Path, kl: KlControl, together: Together) -> Trainee:
        """The policy of the folder `newest`, held to that of `first`. Raises UsageError, MissingError."""
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
        """What the other processes can be told."""
        found: dict[str, Callable[..., object]] = {UPDATE: self.learner.step_together, WHOLE: self.actor.whole}
        if isinstance(self.replies, DealtEngine):
            found |= {DECODE: self.replies.share, LOAD: self.replies.load_own}
        return found


def follow(options: TraineeOptions, together: Together) -> None:
    """What every process but the first does, to the end."""
    doing: dict[str, Callable[..., object]] = {}

    def begin(newest: Path, first: Path, kl: KlControl) -> None:
        doing.update(Trainee.make(options, newest, first, kl, together).doing())

    doing[BEGIN] = begin
    together.follow(doing)
