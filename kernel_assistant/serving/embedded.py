"""A small model on this machine's CPU: messages in, a message with its tokens and their log-probabilities out.

Prompts go as tokens: what the model wrote earlier goes back as it was sampled, and text never becomes a special one.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from kernel_assistant.records.transcript import Message, Usage
from kernel_assistant.serving.errors import ContextFullError, EngineError
from kernel_assistant.serving.local import LocalEngine
from kernel_assistant.serving.stream import Lines
from kernel_assistant.serving.template import TURN_END, pieces

#: The distribution as the model gives it: what is sampled from is what the log-probabilities are of.
_PLAIN = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
_NO_ANSWER = (OSError, http.client.HTTPException)


@dataclass(frozen=True)
class Sampling:
    """`temperature` 0 is greedy. `grammar` is GBNF, "" for none. `max_tokens` bounds the reply, with its end token."""

    max_tokens: int = 1024
    temperature: float = 1.0
    seed: int | None = None
    grammar: str = ""


class EmbeddedModel:
    """One conversation at a time for each object; several objects may share an engine."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self._tokens = lru_cache(maxsize=4096)(self._tokenize)

    def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling | None = None,
        *,
        tools: Sequence[Any] = (),
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Message:
        """The assistant's next message; `logprobs` are of the model's own distribution, before temperature.

        `cancelled` is asked ten times a second. Raises Cancelled, ContextFullError, and EngineError where the process
        died or answered nonsense; the next call starts a new one.
        """
        sampling = sampling or Sampling()
        began = time.monotonic()
        self._engine.running()
        try:
            prompt = self.prompt(messages, tools)
            reply = _Reply()
            for document in self._events(_body(prompt, sampling), cancelled):
                reply.add(document)
        except _NO_ANSWER as error:
            raise self._engine.why() from error
        except (KeyError, TypeError, ValueError) as error:
            raise EngineError(f"{self._engine.spec.engine} answered nonsense: {error!r}", "report this") from error
        if not reply.finish_reason:
            raise self._engine.why()
        return reply.message(len(prompt), time.monotonic() - began)

    def prompt(self, messages: Sequence[Message], tools: Sequence[Any] = ()) -> list[int]:
        """The tokens of a prompt. Raises OSError or HTTPException where the engine is gone."""
        ids: list[int] = []
        for piece in pieces(messages, tools=tools):
            tokens = piece.ids if piece.ids is not None else self._tokens(piece.text, piece.special)
            sampled_to_its_end = piece.special and piece.text == TURN_END and tuple(ids[-1:]) == tokens
            ids += () if sampled_to_its_end else tokens
        return ids

    def _tokenize(self, text: str, special: bool) -> tuple[int, ...]:
        connection = self._connection()
        body = {"content": text, "add_special": False, "parse_special": special}
        document = json.loads(_post(connection, "/tokenize", body, self._engine.spec.key).read())
        connection.close()
        return tuple(int(number) for number in document["tokens"])

    def _events(self, body: dict[str, Any], cancelled: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """What the server streams. Leaving the loop closes the connection, at which it stops generating."""
        connection = self._connection()
        try:
            lines = Lines(lambda: _post(connection, "/completion", body, self._engine.spec.key), connection)
            for line in lines.until(cancelled):
                if line.startswith(b"data: "):
                    yield _checked(json.loads(line[6:]))
                elif line.startswith(b"error: "):
                    _checked({"error": json.loads(line[7:])})
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        place = urlsplit(self._engine.spec.url)
        return http.client.HTTPConnection(place.hostname or "", place.port, timeout=600)


class _Reply:
    """What has come so far."""

    def __init__(self) -> None:
        self.text = ""
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.finish_reason = ""

    def add(self, document: dict[str, Any]) -> None:
        self.text += document["content"]
        for token in document.get("completion_probabilities", ()):
            self.ids.append(int(token["id"]))
            self.logprobs.append(float(token["logprob"]))
        if document["stop"]:
            self.finish_reason = "length" if document["stop_type"] == "limit" else "stop"

    def message(self, prompt_tokens: int, seconds: float) -> Message:
        return Message(
            role="assistant",
            content=self.text,
            token_ids=tuple(self.ids),
            logprobs=tuple(self.logprobs),
            finish_reason=self.finish_reason,
            usage=Usage(prompt_tokens=prompt_tokens, completion_tokens=len(self.ids), seconds=seconds),
        )


def _body(prompt: Iterable[int], sampling: Sampling) -> dict[str, Any]:
    body: dict[str, Any] = {
        "prompt": list(prompt),
        "n_predict": sampling.max_tokens,
        "temperature": sampling.temperature,
        "n_probs": 1,
        "stream": True,
        "cache_prompt": True,
        **_PLAIN,
    }
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if sampling.grammar:
        body["grammar"] = sampling.grammar
    return body


def _post(
    connection: http.client.HTTPConnection, path: str, body: dict[str, Any], key: str
) -> http.client.HTTPResponse:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    connection.request("POST", path, json.dumps(body).encode(), headers)
    response = connection.getresponse()
    if response.status != 200:
        _checked(json.loads(response.read()))
    return response


def _checked(document: dict[str, Any]) -> dict[str, Any]:
    error = document.get("error")
    if error is None:
        return document
    if error.get("type") == "exceed_context_size_error":
        raise ContextFullError(f"the prompt has {error.get('n_prompt_tokens')} tokens, {error.get('n_ctx')} fit")
    raise EngineError(f"llama.cpp refused: {error.get('message')}", "report this")
