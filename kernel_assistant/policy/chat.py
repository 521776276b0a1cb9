"""ChatClient: a model behind any OpenAI-compatible endpoint, by the official client, streamed.

A request is an asyncio task, so that a cancel ends it wherever it stands (connecting, waiting, reading) and closes the
connection, at which servers stop generating. Retries are ours: the client's own sleep through a cancel.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from kernel_assistant.errors import Cancelled, MissingError
from kernel_assistant.policy.chat_failures import failure_of, is_worth_retrying, refuses_words
from kernel_assistant.policy.chat_stream import Collected
from kernel_assistant.policy.client import PolicyError, Request
from kernel_assistant.records.transcript import Message

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream

T = TypeVar("T")
LOOK_EVERY = 0.1  # seconds
#: Asked for beside the reply: what was sampled. vLLM gives both, OpenAI the second; some servers refuse the words.
EXTRAS: dict[str, Any] = {"logprobs": True, "extra_body": {"return_token_ids": True}}


@dataclass(frozen=True)
class ChatSettings:
    """`silence` is how long nothing may come (connecting, first token, between tokens), in seconds.

    `seed` makes sampling repeatable where the server can; best of N gives each conversation its own. A server of ours
    is started again when it ends: as long as `comes_back` says so, attempts that fail do not count.
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
    """See `ModelClient`. Raises MissingError where the `openai` package is not installed."""

    def __init__(self, settings: ChatSettings) -> None:
        self._settings = settings
        self.name, self.context_tokens = settings.model, settings.context_tokens
        self._runner = asyncio.Runner()
        self._client = _connect(settings)
        self._with_extras = True
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
                if attempt >= self._settings.attempts and not self._settings.comes_back():
                    raise PolicyError(error.kind, f"{error.cause} ({attempt} attempts)", error.next_step) from error
            await asyncio.sleep(self._pause(attempt))

    async def _attempt(self, request: Request) -> Message:
        import httpx2
        import openai

        try:
            return await self._stream(request)
        except (openai.OpenAIError, httpx2.HTTPError, ValueError, TimeoutError) as error:
            # ValueError: what came is not JSON, or not the fields that the protocol has.
            if self._speaks_plainer(error):
                return await self._attempt(request)
            raise failure_of(error, self._settings.url) from error

    def _speaks_plainer(self, error: Exception) -> bool:
        """Leave out what a server may have refused; false where there is nothing more to leave out."""
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
            chunks = aiter(stream)
            while True:
                async with asyncio.timeout(wait):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return collected.message(time.monotonic() - began)
                collected.add(chunk)

    async def _begin(self, request: Request) -> tuple[AsyncStream[Any], Collected]:
        """The stream of a reply, and what puts it together."""
        return await self._client.chat.completions.create(**self._body(request)), Collected()

    def _body(self, request: Request) -> dict[str, Any]:
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
        """Doubles; up to a quarter is random, so that several conversations do not come back together."""
        pause = min(self._settings.first_pause * 2.0 ** min(attempt - 1, 9), self._settings.longest_pause)
        return pause * random.uniform(0.75, 1.0)


async def _until(cancelled: Callable[[], bool], work: Awaitable[T]) -> T:
    """The result of `work`; Cancelled as soon as somebody says so."""
    task = asyncio.ensure_future(work)
    while not task.done():
        if cancelled():
            task.cancel()
            await asyncio.wait({task}, timeout=LOOK_EVERY)
            raise Cancelled("cancelled while the model was writing")
        await asyncio.wait({task}, timeout=LOOK_EVERY)
    return task.result()


def _connect(settings: ChatSettings) -> AsyncOpenAI:
    made: AsyncOpenAI = library().AsyncOpenAI(
        base_url=settings.url, api_key=settings.key or "none", timeout=settings.silence, max_retries=0
    )
    return made


def library() -> ModuleType:
    """The openai package, loaded when a model plays. MissingError where it is not installed (`--host` brings none)."""
    try:
        import openai
    except ImportError as error:
        raise MissingError(
            "the package openai is not installed for kernel-assistant", "install it there: pip install openai"
        ) from error
    return openai
