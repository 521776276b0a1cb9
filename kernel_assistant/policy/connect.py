"""Makes clients for the model that the user named: behind an endpoint, in our own server, or in a process of ours."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_assistant.config import Settings
from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.policy.chat import ChatClient, ChatSettings, library
from kernel_assistant.policy.chat_failures import failure_of
from kernel_assistant.policy.chat_tokens import ASK_SECONDS, TokenClient, beside, takes_tokens
from kernel_assistant.policy.client import ModelClient
from kernel_assistant.policy.embedded import EmbeddedClient, FirstReplyCache
from kernel_assistant.serving.endpoint import Endpoint, endpoint_for, local_engine
from kernel_assistant.serving.language import is_earlier
from kernel_assistant.serving.llama import llama
from kernel_assistant.serving.registry import ModelEntry, ModelKind, find
from kernel_assistant.serving.state import running
from kernel_assistant.serving.supervisor import ServerStatus

CONTEXT_TOKENS = 128_000


@dataclass(frozen=True)
class ModelConnection:
    """Makes clients for one model, which the user named as `word`; each conversation has its own client, with its own
    seed. Without an `endpoint`, the model runs in a llama.cpp process of ours. `compact` selects the compact prompts
    and tools for small models. `turns` is the most replies of a conversation, 0 for any number. With `tokens`, prompts
    are sent as token ids. `first` caches the first replies of a model that runs in our process."""

    endpoint: Endpoint | None
    context_tokens: int
    compact: bool
    word: str
    settings: Settings
    turns: int = 0
    tokens: bool = False
    first: FirstReplyCache = field(default_factory=FirstReplyCache)

    @property
    def name(self) -> str:
        """The model's name as it is shown to the user: that at the endpoint, or that in the registry."""
        return find(self.word, self.settings).name if self.endpoint is None else self.endpoint.model

    def client(self, number: int) -> ModelClient:
        """Returns the client for conversation `number`, which is also the seed. Raises MissingError and UsageError."""
        if self.endpoint is None:
            entry = find(self.word, self.settings)
            return EmbeddedClient(local_engine(entry, self.settings), entry.name, seed=number, first=self.first)
        settings = ChatSettings(
            url=self.endpoint.url,
            model=self.endpoint.model,
            key=self.endpoint.key,
            context_tokens=self.context_tokens,
            seed=number,
            comes_back=lambda: self.endpoint is not None and _comes_back(self.endpoint, self.settings),
        )
        return TokenClient(settings) if self.tokens else ChatClient(settings)


def connect(settings: Settings, endpoint: str, model: str) -> ModelConnection:
    """Finds the model, and asks its server for the model's name and context. If `endpoint` is given, it is used, and
    `model` is the name of the model at that endpoint.

    Raises NoModelError, MissingError (also for an endpoint that cannot be reached) and UsageError.
    """
    word = endpoint or model
    entry = find(word, settings)
    if entry.compact:
        require_language(entry)
    if entry.kind is ModelKind.gguf and entry.compact and running(settings) is None:
        llama.check_installed()
        return ModelConnection(None, 0, True, word, settings, entry.turns)
    configured = endpoint_for(settings, word)
    # A bare URL says nothing of the model there, and its key is in a variable.
    bare = entry.kind is ModelKind.endpoint and not entry.remote_name
    key = configured.key or (os.environ.get(settings.api_key_env, "") if bare else "")
    name, context = _served(configured.url, key, model if endpoint else "", configured.model if not bare else "")
    resolved = Endpoint(configured.url, key, name, configured.engine, configured.compact)
    tokens = configured.compact and takes_tokens(configured.url, key, name)
    return ModelConnection(resolved, context, configured.compact, word, settings, entry.turns, tokens)


def require_language(entry: ModelEntry) -> None:
    """Raises UsageError if a model writes kernels in the syntax of an older release of this tool."""
    if entry.kind in (ModelKind.gguf, ModelKind.folder) and is_earlier(Path(entry.where)):
        raise UsageError(
            f"model {entry.name} writes kernels in the language of an earlier version",
            "train it again: kernel-assistant train; or use the shipped model: kernel-assistant models use shipped",
        )


def _comes_back(endpoint: Endpoint, settings: Settings) -> bool:
    """Whether the endpoint is a server of ours that is starting or restarting."""
    state = running(settings)
    coming = (ServerStatus.starting, ServerStatus.restarting)
    return state is not None and state.url == endpoint.url and state.status in coming


def _served(url: str, key: str, wanted: str, known: str) -> tuple[str, int]:
    """Returns the name of the model to request (`known`, if that is not ""), and its context in tokens. Asks the server
    for both with `GET /models`, which not every server supports."""
    openai = library()
    client = openai.OpenAI(base_url=url, api_key=key or "none", timeout=ASK_SECONDS, max_retries=1)
    try:
        listed = {each.id: each for each in client.models.list()}
    except openai.NotFoundError:
        listed = {}
    except (openai.OpenAIError, ValueError) as error:
        failure = failure_of(error, url)
        raise MissingError(failure.cause, failure.next_step) from error
    finally:
        client.close()
    name = known or _chosen(url, wanted, list(listed))
    return name, _context(listed.get(name), url, key)


def _context(model: Any, url: str, key: str) -> int:
    """Returns the context in tokens that vLLM or llama.cpp reports for `model`, an entry of `GET /models`; else the
    default."""
    meta = getattr(model, "meta", None)
    made_for = meta.get("n_ctx_train") if isinstance(meta, dict) else None
    length = getattr(model, "max_model_len", None) or (made_for and (_given_context(url, key) or made_for))
    return length if isinstance(length, int) and length > 0 else CONTEXT_TOKENS


def _given_context(url: str, key: str) -> int:
    """Returns the number of tokens that llama.cpp's server gives to a conversation; they may be fewer than the model
    was trained for. Returns 0 if the server does not say."""
    client = library().OpenAI(base_url=url, api_key=key or "none", timeout=ASK_SECONDS, max_retries=1)
    try:
        answer = client.get(beside(url, "props"), cast_to=object)
    except (library().OpenAIError, ValueError):
        return 0
    finally:
        client.close()
    settings = answer.get("default_generation_settings") if isinstance(answer, dict) else None
    given = settings.get("n_ctx") if isinstance(settings, dict) else None
    return given if isinstance(given, int) else 0


def _chosen(url: str, wanted: str, listed: list[str]) -> str:
    if wanted in listed or (wanted and not listed):
        return wanted
    if len(listed) == 1:
        return listed[0]
    served = ", ".join(sorted(listed)[:8]) or "no models that it names"
    raise UsageError(f"{url} serves {served}", "name one of them: --model NAME")
