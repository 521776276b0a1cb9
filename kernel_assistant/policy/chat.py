"""ChatClient: a model behind any OpenAI-compatible endpoint, used through the official client, with streamed replies.

A request is an asyncio task, so that a cancel ends it in any phase (connecting, waiting, reading) and closes the
connection, at which servers stop generating. Retries are made here, because the openai client would not notice a cancel
while it waits for its next attempt.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kernel_assistant.errors import Cancelled, MissingError
from kernel_assistant.policy.chat_failures import failure_of, is_worth_retrying, refuses_tools, refuses_words
from kernel_assistant.policy.chat_stream import StreamedReply
from kernel_assistant.policy.client import PolicyError, Request
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.template import tools_text, written_text

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream

T = TypeVar("T")
_POLL_SECONDS = 0.1
#: Fields that ask for log-probabilities and token ids. vLLM gives both, OpenAI the first; some servers refuse them.
EXTRAS: dict[str, Any] = {"logprobs": True, "extra_body": {"return_token_ids": True}}


@dataclass(frozen=True)
class ChatSettings:
    """Settings of a client. `silence` is the longest time without data (connecting, first token, between tokens), in
    seconds; the pauses between attempts are in seconds, too.

    `seed` makes sampling repeatable where the server supports it; best of N gives each conversation its own seed. Two
    kinds of failed attempts do not count as one of `attempts`: those while `comes_back()` is true (our own server is
    restarting), and those that a busy server refuses. They are repeated, at the time that the server names or after a
    pause, until the request is cancelled.
    """

    url: str
    model: str
    key: str = ""
    context_tokens: int = 128_000
    temperature: float = 1.0
    seed: int | None = None
    silence: float = 120.0
    attempts: int = 4
    first_pause: float = 0.5
    longest_pause: float = 8.0
    comes_back: Callable[[], bool] = lambda: False


class ChatClient:
    """A client of an OpenAI-compatible endpoint; see `ModelClient`. Raises MissingError if the `openai` package is not
    installed."""

    def __init__(self, settings: ChatSettings) -> None:
        self._settings = settings
        self.name, self.context_tokens = settings.model, settings.context_tokens
        self._runner = asyncio.Runner()
        self._client = _connect(settings)
        self._with_extras = self._with_tools = True
        self._bound = "max_tokens"

    def complete(self, request: Request, cancelled: Callable[[], bool]) -> Message:
        return self._runner.run(_until(cancelled, self._attempts(request)))

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    async def _attempts(self, request: Request) -> Message:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._attempt(request)
            except PolicyError as error:
                if not is_worth_retrying(error):
                    raise
                last = attempt >= self._settings.attempts and error.kind != "busy"
                if last and not self._settings.comes_back():
                    raise PolicyError(error.kind, f"{error.cause} ({attempt} attempts)", error.next_step) from error
                pause = error.after or self._pause(attempt)
            await asyncio.sleep(pause)

    async def _attempt(self, request: Request) -> Message:
        import httpx2
        import openai

        try:
            return await self._stream(request)
        except (openai.OpenAIError, httpx2.HTTPError, ValueError, TimeoutError) as error:
            # ValueError: what came is not JSON, or not the fields that the protocol has.
            if request.tools and self._with_tools and refuses_tools(error):
                self._with_tools = False
                return await self._attempt(request)
            if self._speaks_plainer(error):
                return await self._attempt(request)
            raise failure_of(error, self._settings.url) from error

    def _speaks_plainer(self, error: Exception) -> bool:
        """Leaves out or renames optional fields in later requests, if the server may have refused them. Returns whether
        later requests will differ."""
        if not refuses_words(error):
            return False
        if "max_completion_tokens" in str(error) and self._bound != "max_completion_tokens":
            self._bound = "max_completion_tokens"
            return True
        plainer, self._with_extras = self._with_extras, False
        return plainer

    async def _stream(self, request: Request) -> Message:
        began = time.monotonic()
        wait = self._settings.silence
        async with asyncio.timeout(wait):
            stream, collected = await self._begin(request)
        async with stream:
            if "json" in stream.response.headers.get("content-type", ""):
                # Some servers do not stream, although they are asked to.
                async with asyncio.timeout(wait):
                    return collected.whole(json.loads(await stream.response.aread()), time.monotonic() - began)
            chunks, looked = aiter(stream), began
            while True:
                async with asyncio.timeout(wait):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return collected.message(time.monotonic() - began)
                collected.add(chunk)
                if time.monotonic() - looked >= _POLL_SECONDS:
                    looked = time.monotonic()
                    if request.watch(collected.partial(looked)):
                        collected.stop()
                        return collected.message(looked - began)

    async def _begin(self, request: Request) -> tuple[AsyncStream[Any], StreamedReply]:
        """Returns the stream of a reply, and an object that assembles its chunks to a message."""
        return await self._client.chat.completions.create(**self._body(request)), StreamedReply()

    def _body(self, request: Request) -> dict[str, Any]:
        request = request if self._with_tools else as_text(request)
        body: dict[str, Any] = {
            "model": self._settings.model,
            "messages": [message.openai() for message in request.messages],
            "temperature": self._settings.temperature if request.temperature is None else request.temperature,
            self._bound: request.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            body["tools"] = list(request.tools)
        if self._settings.seed is not None:
            body["seed"] = self._settings.seed
        return body | (EXTRAS if self._with_extras else {})

    def _pause(self, attempt: int) -> float:
        """Seconds before the next attempt. Pauses double with each attempt; up to a quarter is random, so that
        conversations do not retry together."""
        pause = min(self._settings.first_pause * 2.0 ** min(attempt - 1, 9), self._settings.longest_pause)
        return pause * random.uniform(0.75, 1.0)


async def _until(cancelled: Callable[[], bool], work: Awaitable[T]) -> T:
    """Waits for `work` and returns its result. Raises Cancelled as soon as `cancelled()` is true, which is checked
    several times a second."""
    task = asyncio.ensure_future(work)
    while not task.done():
        if cancelled():
            task.cancel()
            await asyncio.wait({task}, timeout=_POLL_SECONDS)
            raise Cancelled("cancelled while the model was writing")
        await asyncio.wait({task}, timeout=_POLL_SECONDS)
    return task.result()


def _connect(settings: ChatSettings) -> AsyncOpenAI:
    made: AsyncOpenAI = library().AsyncOpenAI(
        base_url=settings.url, api_key=settings.key or "none", timeout=settings.silence, max_retries=0
    )
    return made


def library() -> ModuleType:
    """Returns the module `openai`, imported on first use. Raises MissingError if the package is not installed (`--host`
    does not install it)."""
    try:
        import openai
    except ImportError as error:
        raise MissingError(
            "the package openai is not installed for kernel-assistant", "install it there: pip install openai"
        ) from error
    return openai


def as_text(request: Request) -> Request:
    """Returns the request for a server whose model cannot call tools: schemas, calls and results of tools become text
    of the messages."""
    return replace(request, messages=tuple(_joined(_plain(request.messages, request.tools))), tools=())


def _plain(messages: Sequence[Message], tools: Sequence[Any]) -> Iterator[Message]:
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    for message in messages:
        text = written_text(message)
        if message.role == "system" and tools:
            text, tools = text + tools_text(tools), ()
        if message.role == "tool":
            name = names.get(message.tool_call_id, "")
            yield Message(role="user", content=f"Result of {name}:\n{text}" if name else text)
        else:
            yield msgspec.structs.replace(message, content=text, tool_calls=())


def _joined(messages: Iterator[Message]) -> list[Message]:
    """Returns the messages, with consecutive user messages joined into one: many chat templates require user and
    assistant to alternate."""
    joined: list[Message] = []
    for message in messages:
        if message.role == "user" and joined and joined[-1].role == "user":
            joined[-1] = msgspec.structs.replace(joined[-1], content=f"{joined[-1].content}\n\n{message.content}")
        else:
            joined.append(message)
    return joined
