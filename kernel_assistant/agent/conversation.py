"""A conversation that fits into the model's context: all messages are stored in full, but old ones may be sent
shortened.

The server reports the number of tokens of a prompt. From it the number of characters per token is computed, and from
that the number of tokens of later prompts is estimated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from kernel_assistant.events import ModelReplied, RequestedTool
from kernel_assistant.records.transcript import Message, as_sent

#: Characters per token until a server has counted: low, so that the first estimate is high.
CHARACTERS_PER_TOKEN = 2.5
#: Compacting shortens messages until the prompt takes this share of its room: the fewer changes, the better for the
#: prefix caches of servers.
LEAVES = 0.6
#: Last messages that are shortened only if nothing else helps, and those that are never shortened.
RECENT = 6
LAST = 2
#: Tokens that the protocol adds to each message.
EACH = 8
#: Characters of a text, and of a call's arguments, in an event: events stay in the host's memory until their job ends.
MOST_TEXT, MOST_ARGUMENTS = 6000, 6000


@dataclass(frozen=True)
class ContextWindow:
    """Sizes in tokens: `context` is the most that the model takes, prompt and reply together; `reply` is how many of
    these are reserved for the reply."""

    context: int
    reply: int

    @property
    def prompt(self) -> int:
        return self.context - self.reply


class Conversation:
    """A list of messages that only grows. With `compacts`, old messages may be sent shortened. `turn` is the number of
    the model's next reply."""

    def __init__(self, room: ContextWindow, tools: tuple[dict[str, Any], ...] = (), *, compacts: bool) -> None:
        self.messages: list[Message] = []
        self.turn = 1
        self._room, self._compacts = room, compacts
        self._schemas = len(json.dumps(tools)) if tools else 0
        self._ratio = CHARACTERS_PER_TOKEN

    def add(self, message: Message) -> None:
        self.messages.append(message)

    def add_reply(self, reply: Message) -> None:
        """Adds the model's reply to the messages, and corrects the estimate of characters per token with the token
        counts that the server reports in `reply.usage`.

        The estimate is computed from prompt and reply together, because a vocabulary for kernels has tokens for whole
        lines. If the prompt alone gives more characters per token, that value is used: the tokens of a reply may
        include reasoning that is not in its text.
        """
        prompt, answer = reply.usage.prompt_tokens, reply.usage.completion_tokens
        if prompt:
            sent = self.prompt()
            whole = self._characters((*sent, reply)) / (prompt + answer) if answer else 0.0
            self._ratio = max(1.0, self._characters(sent) / prompt, whole)
        self.messages.append(reply)
        self.turn += 1

    def prompt(self) -> tuple[Message, ...]:
        """Returns the messages to send now; old ones may be shortened."""
        return as_sent(tuple(self.messages), self.turn)

    def tokens(self) -> int:
        """Returns the estimated number of tokens of `prompt()`."""
        return self.tokens_of(self.prompt())

    def tokens_of(self, messages: tuple[Message, ...]) -> int:
        """Returns the estimated number of tokens of these messages and of the schemas of the tools."""
        return int(self._characters(messages) / self._ratio)

    def fits(self) -> bool:
        """Whether the prompt fits into the part of the context that is not reserved for the reply. If it does not fit
        and `compacts` is set, shortens old messages first."""
        if self.tokens() > self._room.prompt and self._compacts:
            self._compact()
        return self.tokens() <= self._room.prompt

    def tighten(self) -> bool:
        """Reduces the part of the context for the prompt, after a server refused a prompt as too long. Returns whether
        the prompt now fits and has become shorter."""
        before = self._characters(self.prompt())
        self._room = ContextWindow(
            min(self._room.context, self.tokens()) * 6 // 10 + self._room.reply, self._room.reply
        )
        return self._compacts and self.fits() and self._characters(self.prompt()) < before

    def _compact(self) -> None:
        """Shortens tool results, oldest first; then the model's replies; then, if the prompt still does not fit, recent
        messages of both kinds.

        System message, task, user messages and the last messages stay in full.
        """
        roomy, tight = int(self._room.prompt * LEAVES), self._room.prompt
        for role, kept, wanted in (
            ("tool", RECENT, roomy),
            ("assistant", RECENT, roomy),
            ("tool", LAST, tight),
            ("assistant", LAST, tight),
        ):
            for index, message in enumerate(self.messages[:-kept]):
                if self.tokens() <= wanted:
                    break
                if message.role == role and not message.short_from:
                    self.messages[index] = msgspec.structs.replace(message, short_from=self.turn)

    def _characters(self, messages: tuple[Message, ...]) -> int:
        each = int(EACH * self._ratio)
        return self._schemas + sum(_length(message) + each for message in messages)


def _length(message: Message) -> int:
    return len(message.content) + sum(len(call.name) + len(call.arguments) + 40 for call in message.tool_calls)


def event_of(message: Message, conversation: int, turn: int) -> ModelReplied | None:
    """Returns the event that shows `message` to watchers of a job. Returns None for the system message, because it is
    the same for all tasks."""
    if message.role == "system":
        return None
    return ModelReplied(
        conversation=conversation,
        turn=turn,
        role=message.role,
        text=_cut(message.content, MOST_TEXT),
        calls=tuple(
            RequestedTool(name=call.name, arguments=_cut(call.arguments, MOST_ARGUMENTS)) for call in message.tool_calls
        ),
        candidate=message.candidate,
        tokens=message.usage.completion_tokens,
        seconds=message.usage.seconds,
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} [… {len(text)} characters]"
