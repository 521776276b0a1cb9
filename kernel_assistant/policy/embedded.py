"""EmbeddedClient: a small model in a llama.cpp process of ours, which takes and returns tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from kernel_assistant.policy.client import PolicyError, Request
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.errors import ContextFullError, EngineError
from kernel_assistant.serving.llama.best_first import BestFirstSearch
from kernel_assistant.serving.llama.embedded import EmbeddedModel, Sampling
from kernel_assistant.serving.local import LocalEngine
from kernel_assistant.serving.turn import turn

#: The context that models for the compact profile are trained with.
CONTEXT_TOKENS = 4096
#: The likeliest reply of a small model is its best one; later replies should differ from it.
FIRST_TEMPERATURE, LATER_TEMPERATURE = 0.0, 0.8


def temperature_for(request: Request, seed: int | None) -> float:
    """Returns the temperature at which to sample the reply: that of the request, if it has one. Otherwise it is 0 for
    the first reply of the first conversation (seed 0 or None), so that this reply is the likeliest one, and
    `LATER_TEMPERATURE` for all others."""
    if request.temperature is not None:
        return request.temperature
    return FIRST_TEMPERATURE if not seed and is_first(request) else LATER_TEMPERATURE


def is_first(request: Request) -> bool:
    """Whether the reply is the first one of its conversation."""
    return all(message.role != "assistant" for message in request.messages)


class FirstReplyCache:
    """Hands out the first replies of all conversations about a job, so that no two conversations begin with the same
    reply. Thread-safe: replies are generated one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Sequence[Message], BestFirstSearch] = {}

    def next(
        self, model: EmbeddedModel, request: Request, sampling: Sampling, cancelled: Callable[[], bool]
    ) -> Message:
        """Returns the likeliest reply that no conversation has had yet; if there is none left, a sampled reply. Raises
        Cancelled while it waits for other conversations."""
        with turn(self._lock, cancelled, "another conversation was writing"):
            search = self._known.setdefault(tuple(request.messages), BestFirstSearch())
            begun = search.next()
            if begun is None or len(begun.ids) >= sampling.max_tokens:
                return model.complete(request.messages, sampling, tools=request.tools, cancelled=cancelled)
            greedy = replace(sampling, temperature=0.0, begun=begun)
            answer = model.answer(request.messages, greedy, tools=request.tools, cancelled=cancelled)
            reply = answer.message
            search.add(begun, reply.token_ids or (), reply.logprobs or (), answer.others)
            return reply


class EmbeddedClient:
    """A `ModelClient` for a model in a llama.cpp process of ours. All conversations of the process share the engine,
    those about the same job share `first`; replies after the first are sampled."""

    def __init__(
        self, engine: LocalEngine, name: str, *, seed: int | None = None, first: FirstReplyCache | None = None
    ) -> None:
        self.name, self.context_tokens = name, CONTEXT_TOKENS
        self._model, self._seed, self._first = EmbeddedModel(engine), seed, first or FirstReplyCache()

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
        """Leaves the engine running: another conversation may be using it."""
