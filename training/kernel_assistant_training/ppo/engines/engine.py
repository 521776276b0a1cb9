"""Engines that generate replies: the project's own decoding loop, with a copy of the actor's weights; transformers, for
models that the decoding loop cannot run; or vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from kernel_assistant.errors import UsageError
from kernel_assistant.serving.convert.shape import from_config
from kernel_assistant_training.architecture import Llama
from kernel_assistant_training.decode import Decoder, GenerationRequest, Reply
from kernel_assistant_training.ppo.engines.engine_options import EngineOptions
from kernel_assistant_training.ppo.engines.engine_transformers import TransformersEngine
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.model.process_group import ProcessGroup

KINDS = ("auto", "decoder", "transformers", "vllm")
#: Commands to the other processes, see `process_group.py`.
DECODE, LOAD = "decode", "load"


class Engine(Protocol):
    """The interface of engines, which generate replies to prompts. An engine is used by one thread only."""

    def load(self, actor: Actor) -> None:
        """Replaces the engine's weights by the actor's, which must be of the same model."""

    def decode(self, asked: Sequence[GenerationRequest]) -> list[Reply]: ...

    def rest(self) -> None:
        """Releases GPU memory if possible. Called when no replies are needed for a while."""

    def close(self) -> None: ...


class DecoderEngine:
    """The project's own decoding loop (`decode.py`), for Llama models with tied embeddings. It has its own copy of the
    actor's weights in memory."""

    def __init__(self, actor: Actor, end: int, *, rows: int, context: int) -> None:
        self._llama = Llama(from_config(_config(actor))).to(actor.device)
        self._copy(actor)
        self._decoder = Decoder(self._llama, end, rows=rows, context=context, device=actor.device)

    def load(self, actor: Actor) -> None:
        self._copy(actor)
        self._decoder.load(self._llama)

    def decode(self, asked: Sequence[GenerationRequest]) -> list[Reply]:
        return self._decoder.decode(asked)

    def rest(self) -> None:
        """Does nothing and keeps the memory: the cache is small, and the CUDA graphs need its addresses."""

    def close(self) -> None:
        """Does nothing: there is nothing to release."""

    def _copy(self, actor: Actor) -> None:
        known = actor.model.state_dict()
        self._llama.load_state_dict({name: known[name] for name in self._llama.state_dict()})


class DistributedEngine:
    """An engine over several processes, each of which has its own weights and engine. Prompts are distributed among the
    processes; replies are returned in the order of the prompts."""

    def __init__(self, engine: Engine, actor: Actor, together: ProcessGroup) -> None:
        self._engine, self._actor, self._together = engine, actor, together

    def load(self, actor: Actor) -> None:
        self._together.tell(LOAD)
        self._engine.load(actor)

    def decode(self, asked: Sequence[GenerationRequest]) -> list[Reply]:
        self._together.tell(DECODE, list(asked))
        return self.share(asked)

    def share(self, asked: Sequence[GenerationRequest]) -> list[Reply]:
        """Decodes this process's share of the prompts and returns the replies to all prompts. Every process must call
        it."""
        count = self._together.count
        replies = self._together.every(self._engine.decode(asked[self._together.rank :: count]))
        return [replies[number % count][number // count] for number in range(len(asked))]

    def load_own(self) -> None:
        """Replaces the weights of this process's engine by those of its actor."""
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
    together: ProcessGroup | None = None,
) -> Engine:
    """Returns the engine that `options` names; by default the decoding loop if it can run the model, else transformers.
    It decodes up to `rows` conversations of at most `context` tokens at once; the tokens `ends` end a reply. With
    several processes in `together`, each decodes a share of the prompts. vLLM needs the model's `folder` with the
    vocabulary, and writes weights below the folder `serving`. Raises UsageError if the engine cannot run the model."""
    options, together = options or EngineOptions(), together or ProcessGroup()
    if options.kind == "vllm":
        from kernel_assistant_training.ppo.engines.engine_vllm import VllmEngine

        assert folder is not None and serving is not None
        return VllmEngine(
            actor, ends, rows=rows, context=context, options=options, folder=folder, serving=serving / "serving"
        )
    if actor.sharded:
        raise UsageError("a model in parts generates by vLLM alone", "add --engine vllm, or leave --shard out")
    fits = len(ends) == 1 and _fits(actor)
    if options.kind == "decoder" and not fits:
        raise UsageError("the decoding loop runs Llamas with tied embeddings alone", "use --engine transformers")
    chosen: Engine
    if fits and options.kind != "transformers":
        chosen = DecoderEngine(actor, ends[0], rows=rows, context=context)
    else:
        chosen = TransformersEngine(actor, ends, rows=rows)
    return chosen if together.count == 1 else DistributedEngine(chosen, actor, together)


def _fits(actor: Actor) -> bool:
    try:
        return actor.adapters is None and bool(from_config(_config(actor)).tied)
    except UsageError:
        return False


def _config(actor: Actor) -> dict[str, Any]:
    config: dict[str, Any] = actor.model.config.to_dict()
    return config
