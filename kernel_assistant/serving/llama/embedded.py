"""A small model on this machine's CPU. It takes messages, and returns a message with its tokens and their
log-probabilities.

Prompts are sent as tokens: earlier replies of the model keep their sampled tokens, and text never becomes a special
token.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_assistant.environment.device_locks import lock_folder
from kernel_assistant.errors import Cancelled
from kernel_assistant.records.transcript import Message, Usage
from kernel_assistant.serving.asking import ask
from kernel_assistant.serving.errors import EngineError
from kernel_assistant.serving.llama.best_first import START, WIDTH, Others, PartialReply
from kernel_assistant.serving.local import LocalEngine
from kernel_assistant.serving.template import TURN_END, assemble, pieces
from kernel_assistant.worker.device_lock import DeviceLock

#: Sampling without truncation, so that the log-probabilities belong to the distribution that is sampled from.
_PLAIN = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0, "cache_prompt": True}
#: Tokens of one request. Small requests are no slower than one large request, and can be cancelled soon.
_STRETCH = 16
#: More tokens than any vocabulary has.
_EVERY_TOKEN = 1 << 20


@dataclass(frozen=True)
class Sampling:
    """How a reply is sampled. `temperature` 0 is greedy. `begun` is a beginning that is given; `max_tokens` limits the
    whole reply, including its end token and `begun`."""

    max_tokens: int = 1024
    temperature: float = 1.0
    seed: int | None = None
    begun: PartialReply = START


@dataclass(frozen=True)
class EmbeddedReply:
    """A reply. `others` has the likeliest tokens at each position of the reply, () where they are not known."""

    message: Message
    others: tuple[Others, ...]


class EmbeddedModel:
    """Generates replies. An object serves one conversation at a time; several objects may share an engine. Nothing is
    generated while something is timed on the CPU: a kernel of 1.6 ms on two cores took 3.4 to 3.7 ms beside eight
    conversations."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self._known: dict[tuple[str, bool], tuple[int, ...]] = {}

    def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling | None = None,
        *,
        tools: Sequence[Any] = (),
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Message:
        """Returns the assistant's next message; see `answer`."""
        return self.answer(messages, sampling, tools=tools, cancelled=cancelled).message

    def answer(
        self,
        messages: Sequence[Message],
        sampling: Sampling | None = None,
        *,
        tools: Sequence[Any] = (),
        cancelled: Callable[[], bool] = lambda: False,
    ) -> EmbeddedReply:
        """Returns the assistant's next message; `logprobs` belong to the model's distribution, before temperature.

        `cancelled` is called ten times a second. Raises Cancelled, ContextFullError, and EngineError if the process
        died or answered nonsense; the next call starts a new process.
        """
        began = time.monotonic()
        self._engine.running()
        try:
            with self._engine.reply(cancelled):
                prompt = self.prompt(messages, tools, cancelled)
                sampled = self._sample(prompt, sampling or Sampling(), cancelled)
                logprobs, others = self._logprobs(prompt, sampled, cancelled)
                content = self._text(sampled.ids[:-1] if sampled.ended else sampled.ids, cancelled)
            message = Message(
                role="assistant",
                content=content,
                token_ids=tuple(sampled.ids),
                logprobs=logprobs,
                finish_reason="stop" if sampled.ended else "length",
                usage=Usage(
                    prompt_tokens=len(prompt),
                    completion_tokens=len(sampled.ids) - len(sampled.begun.ids),
                    seconds=time.monotonic() - began,
                ),
            )
        except (OSError, http.client.HTTPException) as error:
            raise self._engine.why() from error
        except (KeyError, TypeError, ValueError) as error:
            raise EngineError(f"{self._engine.spec.engine} answered nonsense: {error!r}", "report this") from error
        return EmbeddedReply(message, others)

    def prompt(
        self, messages: Sequence[Message], tools: Sequence[Any] = (), cancelled: Callable[[], bool] = lambda: False
    ) -> list[int]:
        """Returns the tokens of a prompt. Raises OSError or HTTPException if the engine is gone."""
        return assemble(pieces(messages, tools=tools), lambda piece: self._tokens(piece.text, piece.special, cancelled))

    def _tokens(self, text: str, special: bool, cancelled: Callable[[], bool]) -> tuple[int, ...]:
        if (text, special) not in self._known:
            body = {"content": text, "add_special": False, "parse_special": special}
            ids = self._ask("/tokenize", body, cancelled)["tokens"]
            self._known[text, special] = tuple(int(number) for number in ids)
        return self._known[text, special]

    def _sample(self, prompt: list[int], sampling: Sampling, cancelled: Callable[[], bool]) -> _Sampled:
        """Samples a reply in several requests, and checks for a cancel between them, since the server finishes each
        request that it has begun.

        A streamed request could be cancelled, but leaves out the ids of tokens that end inside a character.
        """
        sampled = _Sampled(list(sampling.begun.ids), [], sampling.begun, ended=False)
        # The given beginning may already contain the end of the turn.
        sampled.ended = sampled.ids[-1:] == list(self._tokens(TURN_END, True, cancelled))
        while not sampled.ended and len(sampled.ids) < sampling.max_tokens:
            left = sampling.max_tokens - len(sampled.ids)
            stretch = min(left, _STRETCH)
            body = _body([*prompt, *sampled.ids], sampling, stretch, len(sampled.ids))
            answer = self._written(body, cancelled)
            ids = [int(number) for number in answer["tokens"]]
            sampled.ids.extend(ids)
            sampled.given.extend(answer.get("completion_probabilities") or ())
            sampled.ended = answer["stop_type"] == "eos"
            if len(ids) < stretch:
                break
        return sampled

    def _text(self, ids: Sequence[int], cancelled: Callable[[], bool]) -> str:
        return str(self._ask("/detokenize", {"tokens": list(ids)}, cancelled)["content"])

    def _logprobs(
        self, prompt: list[int], sampled: _Sampled, cancelled: Callable[[], bool]
    ) -> tuple[tuple[float, ...], tuple[Others, ...]]:
        """Returns the log-probability of each token of the reply, and the likeliest tokens at each position. llama.cpp
        leaves out tokens that end inside a character: their log-probabilities are requested separately, without the
        likeliest tokens.

        Raises ValueError if the server's tokens are not part of the reply.
        """
        known, begun = list(reversed(sampled.given)), sampled.begun.logprobs
        logprobs, others = list(begun), list[Others]([()] * len(begun))
        for position, number in enumerate(sampled.ids[len(begun) :], len(begun)):
            if known and known[-1]["id"] == number:
                given = known.pop()
                logprobs.append(float(given["logprob"]))
                others.append([(int(one["id"]), float(one["logprob"])) for one in given["top_logprobs"]])
            else:
                logprobs.append(self._logprob([*prompt, *sampled.ids[:position]], number, cancelled))
                others.append(())
        if known:
            raise ValueError("log-probabilities of other tokens")
        return tuple(logprobs), tuple(others)

    def _logprob(self, prompt: list[int], number: int, cancelled: Callable[[], bool]) -> float:
        # A bias makes a whole character follow, since the server reports nothing otherwise. It does not change the
        # log-probability of the given token.
        whole = [[self._tokens("a", False, cancelled)[0], 1e4]]
        body = _body(prompt, Sampling(temperature=0.0), 1, 0) | {"n_probs": _EVERY_TOKEN, "logit_bias": whole}
        every = self._written(body, cancelled)["completion_probabilities"]
        return next(float(token["logprob"]) for token in every[0]["top_logprobs"] if token["id"] == number)

    def _written(self, body: dict[str, Any], cancelled: Callable[[], bool]) -> dict[str, Any]:
        """Requests one part of a reply, while nothing is timed on this processor."""

        def check() -> None:
            if cancelled():
                raise Cancelled("cancelled while a kernel was timed")

        with DeviceLock(lock_folder("cpu")).shared(check):
            return self._ask("/completion", body, cancelled)

    def _ask(self, path: str, body: dict[str, Any], cancelled: Callable[[], bool]) -> dict[str, Any]:
        return ask(self._engine.spec.url, self._engine.spec.key, path, body, cancelled)


@dataclass
class _Sampled:
    """A sampled reply. `given` are the server's reports on the tokens after `begun`; some tokens have none. `ended`:
    the last token ends the turn."""

    ids: list[int]
    given: list[dict[str, Any]]
    begun: PartialReply
    ended: bool


def _body(prompt: Sequence[int], sampling: Sampling, tokens: int, position: int) -> dict[str, Any]:
    """Returns the JSON of a request for `tokens` more tokens, beginning at `position` of a reply."""
    body: dict[str, Any] = {
        "prompt": list(prompt),
        "n_predict": tokens,
        "temperature": sampling.temperature,
        "n_probs": WIDTH,
        "return_tokens": True,
        **_PLAIN,
    }
    if sampling.seed is not None:
        body["seed"] = (sampling.seed + position) % (1 << 32)
    return body
