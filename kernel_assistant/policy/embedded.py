"""EmbeddedClient: a small model in a llama.cpp process of ours, tokens in and tokens out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from kernel_assistant.policy.client import PolicyError, Request
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.best_first import BestFirst
from kernel_assistant.serving.embedded import EmbeddedModel, Sampling
from kernel_assistant.serving.errors import ContextFullError, EngineError
from kernel_assistant.serving.local import LocalEngine
from kernel_assistant.serving.turn import turn

#: What models for the compact profile are trained for.
CONTEXT_TOKENS = 4096
#: The likeliest answer of a small model is its best one; what comes after it is to be different.
FIRST_TEMPERATURE, LATER_TEMPERATURE = 0.0, 0.8


def temperature_for(request: Request, seed: int | None) -> float:
    """What the request says; else the first reply of the first conversation (seed 0 or none) is the likeliest one, all
    others are sampled."""
    if request.temperature is not None:
        return request.temperature
    return FIRST_TEMPERATURE if not seed and is_first(request) else LATER_TEMPERATURE


def is_first(request: Request) -> bool:
    """Whether the reply is the first one of its conversation."""
    return all(message.role != "assistant" for message in request.messages)


class FirstAnswers:
    """First replies of all conversations about a job: none is made twice. Thread-safe; they come one after another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Sequence[Message], BestFirst] = {}

    def next(
        self, model: EmbeddedModel, request: Request, sampling: Sampling, cancelled: Callable[[], bool]
    ) -> Message:
        """The likeliest that nobody has had; as sampled where there is none left."""
        with turn(self._lock, cancelled, "another conversation was writing"):
            search = self._known.setdefault(tuple(request.messages), BestFirst())
            begun = search.next()
            if begun is None or len(begun.ids) >= sampling.max_tokens:
                return model.complete(request.messages, sampling, tools=request.tools, cancelled=cancelled)
            greedy = replace(sampling, temperature=0.0, begun=begun)
            found = model.answer(request.messages, greedy, tools=request.tools, cancelled=cancelled)
            said = found.message
            search.add(begun, said.token_ids or (), said.logprobs or (), found.others)
            return said


class EmbeddedClient:
    """See `ModelClient`. The engine is shared by all conversations of the process, which end it when they end, and
    `first` by those about the same job; replies that are not first ones are sampled."""

    def __init__(
        self, engine: LocalEngine, name: str, *, seed: int | None = None, first: FirstAnswers | None = None
    ) -> None:
        self.name, self.context_tokens = name, CONTEXT_TOKENS
        self._model, self._seed, self._first = EmbeddedModel(engine), seed, first or FirstAnswers()

    def complete(self, request: Request, cancelled: Callable[[], bool]) -> Message:
        sampling = Sampling(max_tokens=request.max_tokens, temperature=LATER_TEMPERATURE, seed=self._seed)
        try:
            if is_first(request):
                return self._first.next(self._model, request, sampling, cancelled)
            return self._model.complete(request.messages, sampling, tools=request.tools, cancelled=cancelled)
        except ContextFullError as error:
            raise PolicyError("context", error.cause, error.next_step) from error
        except EngineError as error:
            raise PolicyError("engine", error.cause, error.next_step) from error

    def close(self) -> None:
        """The engine goes on: another conversation may be using it."""
