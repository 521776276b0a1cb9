"""EmbeddedClient: a small model in a llama.cpp process of ours, tokens in and tokens out."""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.policy.client import PolicyError, Request
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.embedded import EmbeddedModel, Sampling
from kernel_assistant.serving.errors import ContextFullError, EngineError
from kernel_assistant.serving.local import LocalEngine

#: What models for the compact profile are trained for.
CONTEXT_TOKENS = 4096
#: The likeliest answer of a small model is its best one; what comes after it is to be different.
FIRST_TEMPERATURE, LATER_TEMPERATURE = 0.0, 0.8


def temperature_for(request: Request, seed: int | None) -> float:
    """The first reply of the first conversation (seed 0 or none) is the likeliest one, all others are sampled."""
    first = not seed and all(message.role != "assistant" for message in request.messages)
    return FIRST_TEMPERATURE if first else LATER_TEMPERATURE


class EmbeddedClient:
    """See `ModelClient`. The engine is shared by all conversations of the process, which end it when they end."""

    def __init__(self, engine: LocalEngine, name: str, *, seed: int | None = None) -> None:
        self.name, self.context_tokens = name, CONTEXT_TOKENS
        self._model, self._seed = EmbeddedModel(engine), seed

    def complete(self, request: Request, cancelled: Callable[[], bool]) -> Message:
        temperature = temperature_for(request, self._seed)
        sampling = Sampling(max_tokens=request.max_tokens, temperature=temperature, seed=self._seed)
        try:
            return self._model.complete(request.messages, sampling, tools=request.tools, cancelled=cancelled)
        except ContextFullError as error:
            raise PolicyError("context", error.cause, error.next_step) from error
        except EngineError as error:
            raise PolicyError("engine", error.cause, error.next_step) from error

    def close(self) -> None:
        """The engine goes on: another conversation may be using it."""
