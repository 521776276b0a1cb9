"""Transcript: all messages of one conversation between a language model and its tools, to be replayed or trained on."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from kernel_assistant.records.codec import Record

#: Most characters of a shortened message, and of arguments that it keeps.
SHORT = 160
LONG_ARGUMENTS = 400


class ToolCall(Record, frozen=True, kw_only=True):
    """A call of a tool as the model wrote it: `arguments` is its JSON text, valid or not."""

    id: str
    name: str
    arguments: str


class Usage(Record, frozen=True, kw_only=True):
    """Tokens of one request, as the server counted them (0 if it did not count), and its wall time."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0


class Message(Record, frozen=True, kw_only=True):
    """One message. The fields from `tool_calls` on are for assistant messages.

    `token_ids` and `logprobs` (natural logarithms) have one entry for each sampled token, and are None where the server
    does not give them. `short_from` is the turn from which on the message is sent shortened, 0 for never. `candidate`
    is the hash of the candidate that a tool's answer reports on; its evaluation is in the trajectory.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_call_id: str = ""
    short_from: int = 0
    candidate: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    finish_reason: str = ""
    usage: Usage = Usage()

    def __post_init__(self) -> None:
        if self.role != "assistant" and (self.tool_calls or self.token_ids is not None or self.logprobs is not None):
            raise ValueError(f"a {self.role} message has no calls and no sampled tokens")
        if self.candidate and self.role not in ("tool", "user"):
            raise ValueError(f"a {self.role} message reports on no candidate")
        if (self.role == "tool") != bool(self.tool_call_id):
            raise ValueError("a tool message, and no other, answers a call")

    def openai(self) -> dict[str, Any]:
        """Returns the message as a dictionary, in the form that an OpenAI-compatible endpoint accepts."""
        document: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_call_id:
            document["tool_call_id"] = self.tool_call_id
        if self.tool_calls:
            document["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        return document

    def in_short(self) -> Message:
        """Returns the shortened message: one line of the content, without long arguments of calls and without sampled
        tokens."""
        line = self.content.strip().partition("\n")[0]
        cut = self.content if len(self.content) <= SHORT else f"{line[:SHORT]} [… {len(self.content)} characters]"
        calls = tuple(_shorter(call) for call in self.tool_calls)
        return msgspec.structs.replace(self, content=cut, tool_calls=calls, token_ids=None, logprobs=None)


class Transcript(Record, frozen=True, kw_only=True):
    """All messages of one conversation, in order and in full.

    `profile` is "full" or "compact", `tools` the schemas that were sent. `ending` says in one line how the conversation
    ended.
    """

    model: str
    profile: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    ending: str = ""

    @property
    def replies(self) -> tuple[Message, ...]:
        return tuple(message for message in self.messages if message.role == "assistant")

    def prompt(self, turn: int) -> tuple[Message, ...]:
        """Returns the messages that were sent for reply number `turn` (from 1). Raises IndexError where there is no
        such reply."""
        positions = [position for position, message in enumerate(self.messages) if message.role == "assistant"]
        return as_sent(self.messages[: positions[turn - 1]], turn)


def as_sent(messages: tuple[Message, ...], turn: int) -> tuple[Message, ...]:
    """Returns the messages as they are sent to the model for reply number `turn`: old ones are shortened."""
    return tuple(
        message.in_short() if message.short_from and message.short_from <= turn else message for message in messages
    )


def _shorter(call: ToolCall) -> ToolCall:
    if len(call.arguments) <= LONG_ARGUMENTS:
        return call
    return msgspec.structs.replace(call, arguments=json.dumps({"left_out": f"{len(call.arguments)} characters"}))
