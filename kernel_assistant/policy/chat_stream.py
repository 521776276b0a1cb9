"""Assembles a streamed chat completion to one message."""

from __future__ import annotations

import time
from typing import Any

from kernel_assistant.policy.client import STOPPED, PolicyError, ReplySoFar
from kernel_assistant.records.transcript import Message, ToolCall, Usage


class StreamedReply:
    """Collects the chunks of a reply. Fields that only some servers send (`reasoning_content`, `token_ids`) are
    optional."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._finish = ""
        self._usage = (0, 0)
        self._chunks = 0
        self._began = 0.0

    def add(self, chunk: Any) -> None:
        """Adds one `ChatCompletionChunk`; the last one may have only the usage. Raises PolicyError for anything
        else."""
        self._chunks += 1
        self._began = self._began or time.monotonic()
        try:
            self._add(chunk)
        except (AttributeError, TypeError) as error:
            raise _nonsense(str(error)) from error

    def _add(self, chunk: Any) -> None:
        if getattr(chunk, "usage", None) is not None:
            self._usage = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
        for choice in getattr(chunk, "choices", None) or ():
            self._add_choice(choice)
            self._finish = choice.finish_reason or self._finish
            self._ids += getattr(choice, "token_ids", None) or ()

    def partial(self, now: float) -> ReplySoFar:
        """Returns the part of the reply that was received until `now`, a time of the monotonic clock. Names and
        arguments of tool calls are part of its text."""
        written = [part for call in self._calls.values() for part in (call["name"], call["arguments"])]
        return ReplySoFar("".join([*self._reasoning, *self._text, *written]), self._chunks, now - self._began)

    def stop(self) -> None:
        """Ends the reply here. Its last tool call is left out, because it may be incomplete."""
        self._finish = STOPPED
        if self._calls:
            self._calls.pop(max(self._calls))

    def whole(self, document: Any, seconds: float) -> Message:
        """Returns the reply of a server that sent it as one JSON document instead of a stream. Raises PolicyError for
        any other answer."""
        if not isinstance(document, dict) or not document.get("choices"):
            error = document.get("error") if isinstance(document, dict) else None
            raise _nonsense(str(error or document)[:200])
        try:
            choices = [_as_delta(choice) for choice in document["choices"]]
        except (AttributeError, TypeError) as error:
            raise _nonsense(str(error)) from error
        self.add(_chunk({**document, "choices": choices}))
        return self.message(seconds)

    def message(self, seconds: float) -> Message:
        """Returns the whole reply; `seconds` is the wall time of the request. Raises PolicyError if the stream ended
        before the reply was complete."""
        if not self._chunks:
            raise _nonsense("no event of a stream came")
        if not self._finish:
            raise PolicyError("truncated", "the endpoint's stream ended in the middle of a reply", "see its log")
        prompt, completion = self._usage
        return Message(
            role="assistant",
            content=_sound("".join(self._text)),
            reasoning=_sound("".join(self._reasoning)),
            tool_calls=tuple(_call(index, call) for index, call in sorted(self._calls.items())),
            token_ids=tuple(self._ids) or None,
            logprobs=tuple(self._logprobs) or None,
            finish_reason=self._finish,
            usage=Usage(prompt_tokens=prompt, completion_tokens=completion, seconds=seconds),
        )

    def _add_choice(self, choice: Any) -> None:
        self._add_delta(choice.delta)
        if choice.logprobs is not None and choice.logprobs.content:
            self._logprobs += [token.logprob for token in choice.logprobs.content]

    def _add_delta(self, delta: Any) -> None:
        self._text.append(delta.content or "")
        self._reasoning.append(getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None) or "")
        for part in delta.tool_calls or ():
            call = self._calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
            call["id"] = part.id or call["id"]
            if part.function is not None:
                call["name"] += part.function.name or ""
                call["arguments"] += part.function.arguments or ""


class StreamedText(StreamedReply):
    """Like `StreamedReply`, but for the endpoint that completes a prompt: the reply is the sampled text, in which the
    server has not parsed tool calls."""

    def message(self, seconds: float) -> Message:
        """Returns the whole reply as the base class does. Raises PolicyError also if there are not as many
        log-probabilities as tokens."""
        reply = super().message(seconds)
        if reply.logprobs is not None and len(reply.logprobs) != len(reply.token_ids or ()):
            raise _nonsense(f"{len(reply.token_ids or ())} tokens and {len(reply.logprobs)} log-probabilities")
        return reply

    def _add_choice(self, choice: Any) -> None:
        if not isinstance(choice.text, str):
            raise TypeError("a choice without text")
        self._text.append(choice.text)
        if choice.logprobs is not None:
            self._logprobs += choice.logprobs.token_logprobs or ()


def _as_delta(choice: dict[str, Any]) -> dict[str, Any]:
    """Converts a choice of a complete reply to a choice of a streamed reply, in which the tool calls are numbered."""
    message = choice.get("message") or {}
    calls = [{**call, "index": index} for index, call in enumerate(message.get("tool_calls") or ())]
    return {**choice, "delta": {**message, "tool_calls": calls}}


def _chunk(document: dict[str, Any]) -> Any:
    from openai.types.chat import ChatCompletionChunk

    return ChatCompletionChunk.construct(**document)


def _call(index: int, call: dict[str, str]) -> ToolCall:
    """Returns the tool call number `index` of a reply, from the keys id, name and arguments. A call without a name is
    named "unnamed", because servers refuse later requests that contain a call without a name."""
    return ToolCall(
        id=call["id"] or f"call_{index}",
        name=_sound(call["name"]) or "unnamed",
        arguments=_sound(call["arguments"]) or "{}",
    )


def _sound(text: str) -> str:
    """Returns `text` with halves of surrogate pairs replaced by "?": JSON can express them, UTF-8 cannot."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _nonsense(why: str) -> PolicyError:
    return PolicyError("nonsense", f"the endpoint does not stream chat completions: {why}", "is it OpenAI-compatible?")
