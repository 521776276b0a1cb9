"""Who generates: the decoding loop with the actor's weights, transformers for models that it cannot run, or vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kernel_assistant.errors import UsageError
from kernel_assistant.serving.convert.shape import from_config
from kernel_assistant_training.architecture import Llama
from kernel_assistant_training.decode import Asked, Decoder, Reply
from kernel_assistant_training.ppo.actor import Actor
from kernel_assistant_training.ppo.engine_transformers import TransformersEngine
from kernel_assistant_training.ppo.together import Together

KINDS = ("auto", "decoder", "transformers", "vllm")
#: What other processes are told, see `together.py`.
DECODE, LOAD = "decode", "load"


@dataclass(frozen=True)
class EngineOptions:
    """`arguments` go to vLLM's server as they are; `share` of the GPU's memory is its own while it generates."""

    kind: str = "auto"
    arguments: tuple[str, ...] = ()
    share: float | None = None


class Engine(Protocol):
    """For one thread."""

    def load(self, actor: Actor) -> None:
        """Other weights of the same model."""

    def decode(self, asked: Sequence[Asked]) -> list[Reply]: ...

    def rest(self) -> None:
        """Nothing is asked for a while: others need the GPU."""

    def close(self) -> None: ...


class DecoderEngine:
    """The decoding loop (`decode.py`) for Llamas with tied embeddings; weights go over in memory."""

    def __init__(self, actor: Actor, end: int, *, rows: int, context: int) -> None:
        self._llama = Llama(from_config(_config(actor))).to(actor.device)
        self._copy(actor)
        self._decoder = Decoder(self._llama, end, rows=rows, context=context, device=actor.device)

    def load(self, actor: Actor) -> None:
        self._copy(actor)
        self._decoder.load(self._llama)

    def decode(self, asked: Sequence[Asked]) -> list[Reply]:
        return self._decoder.decode(asked)

    def rest(self) -> None:
        """Its cache is small, and its graphs need it where it is."""

    def close(self) -> None:
        """Nothing is held outside."""

    def _copy(self, actor: Actor) -> None:
        known = actor.model.state_dict()
        self._llama.load_state_dict({name: known[name] for name in self._llama.state_dict()})


class DealtEngine:
    """Several processes, each with its own weights and engine: prompts are dealt, replies come back in order."""

    def __init__(self, engine: Engine, actor: Actor, together: Together) -> None:
        self._engine, self._actor, self._together = engine, actor, together

    def load(self, actor: Actor) -> None:
        self._together.tell(LOAD)
        self._engine.load(actor)

    def decode(self, asked: Sequence[Asked]) -> list[Reply]:
        self._together.tell(DECODE, list(asked))
        return self.share(asked)

    def share(self, asked: Sequence[Asked]) -> list[Reply]:
        """What each process does."""
        count = self._together.count
        replies = self._together.every(self._engine.decode(asked[self._together.rank :: count]))
        return [replies[number % count][number // count] for number in range(len(asked))]

    def load_own(self) -> None:
        """This process's actor has other weights."""
        self._engine.load(self._actor)

    def rest(self) -> None:
        self._engine.rest()

    def close(self) -> None:
        self._engine.close()


def engine(
    actor: Actor,
    ends: Sequence[int],
    *,
    rows: int,
    context: int,
    options: EngineOptions | None = None,
    folder: Path | None = None,
    serving: Path | None = None,
    together: Together | None = None,
) -> Engine:
    """The decoding loop where it can run the model. vLLM needs the model's `folder`, which has the vocabulary, and one
    to put weights into. Raises UsageError for one that cannot."""
    options, together = options or EngineOptions(), together or Together()
    if options.kind == "vllm":
        from kernel_assistant_training.ppo.engine_vllm import VllmEngine

        assert folder is not None and serving is not None
        return VllmEngine(
            actor, ends, rows=rows, context=context, options=options, folder=folder, serving=serving / "serving"
        )
    if actor.sharded:
        raise UsageError("a model in parts generates by vLLM alone", "add --engine vllm, or leave --shard out")
    fits = len(ends) == 1 and _fits(actor)
    if options.kind == "decoder" and not fits:
        raise UsageError("the decoding loop runs Llamas with tied embeddings alone", "use --engine transformers")
    found: Engine
    if fits and options.kind != "transformers":
        found = DecoderEngine(actor, ends[0], rows=rows, context=context)
    else:
        found = TransformersEngine(actor, ends, rows=rows)
    return found if together.count == 1 else DealtEngine(found, actor, together)


def _fits(actor: Actor) -> bool:
    try:
        return actor.adapters is None and bool(from_config(_config(actor)).tied)
    except UsageError:
        return False


def _config(actor: Actor) -> dict[str, Any]:
    found: dict[str, Any] = actor.model.config.to_dict()
    return found
