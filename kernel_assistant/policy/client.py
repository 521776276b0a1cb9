"""The interface of a language model that a conversation uses, on any machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.records.transcript import Message

#: Finish reason of a reply that its watcher ended.
STOPPED = "stopped"


class PolicyError(KernelAssistantError):
    """A policy that cannot continue. `kind` names how it failed:

    `unreachable`, `timeout`, `refused` (4xx), `busy` (429, 529), `server` (5xx, or an error in the stream), `truncated`
    (the stream ended in the middle), `nonsense` (not the protocol), `context` (the conversation is too long), `engine`
    (our own engine process failed). `after` is how many seconds a server asks to wait, 0 if it does not say.
    """

    def __init__(self, kind: str, cause: str, next_step: str = "", *, after: float = 0.0) -> None:
        super().__init__(cause, next_step)
        self.kind, self.after = kind, after


@dataclass(frozen=True)
class ReplySoFar:
    """The received part of a reply: its text (reasoning included), the number of its tokens or chunks, and the seconds
    since the first of them."""

    text: str
    tokens: int
    seconds: float

    @property
    def rate(self) -> float:
        """The tokens per second after the first token; 0 before the second token."""
        return (self.tokens - 1) / self.seconds if self.tokens > 1 and self.seconds > 0 else 0.0


def unwatched(partial: ReplySoFar) -> bool:
    """Returns False. It is the default of `Request.watch`: nobody watches the reply, and nothing ends it early."""
    return False


@dataclass(frozen=True)
class Request:
    """The request for one reply. `messages` are sent as they are, `tools` are OpenAI schemas; `max_tokens` bounds the
    reply. Without a `temperature` the client uses its own default. A client that streams calls `watch` several times a
    second; if it returns True, the reply ends there, with the finish reason `STOPPED`."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    max_tokens: int = 4096
    temperature: float | None = None
    watch: Callable[[ReplySoFar], bool] = unwatched


class ModelClient(Protocol):
    """A language model that takes messages and returns one assistant message. Used by one thread at a time.

    `context_tokens` is the largest number of tokens of a prompt and its reply together.
    """

    name: str
    context_tokens: int

    def complete(self, request: Request, cancelled: Callable[[], bool]) -> Message:
        """Returns the reply, with its tool calls and usage, and with token ids and log-probabilities if the client gets
        them.

        `cancelled` is called several times a second. Raises Cancelled and PolicyError.
        """

    def close(self) -> None: ...
