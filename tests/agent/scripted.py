"""A model whose replies were written beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kernel_assistant.errors import Cancelled
from kernel_assistant.policy.client import PolicyError, Request
from kernel_assistant.records.transcript import Message

#: A reply: its text, a whole message, or a function that makes one from the request.
Line = str | Message | Callable[[Request], str | Message]


class ScriptedClient:
    """Replies with its lines in order; after the last one it fails like an endpoint that cannot be reached."""

    def __init__(self, lines: Iterable[Line], *, name: str = "scripted", context_tokens: int = 128_000) -> None:
        self.name, self.context_tokens = name, context_tokens
        self._lines = iter(lines)
        self.requests: list[Request] = []

    def complete(self, request: Request, cancelled: Callable[[], bool]) -> Message:
        if cancelled():
            raise Cancelled("cancelled")
        self.requests.append(request)
        line = next(self._lines, None)
        if line is None:
            raise PolicyError("unreachable", "the script has no more lines")
        reply = line(request) if callable(line) else line
        return reply if isinstance(reply, Message) else Message(role="assistant", content=reply, finish_reason="stop")

    def close(self) -> None:
        """Does nothing: there is nothing to release."""
