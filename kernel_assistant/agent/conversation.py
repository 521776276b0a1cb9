"""A conversation that fits: messages in full as they were said, and what of them is sent in short.

Tokens are counted by the server, and estimated for what it has not seen: each reply tells how many characters one has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from kernel_assistant.records.transcript import Message, as_sent

#: Characters per token until a server has counted: low, so that the first estimate is high.
CHARACTERS_PER_TOKEN = 2.5
#: After compacting, this share of the room is taken at most: prefix caches of servers hold on to what stays the same.
LEAVES = 0.6
#: Messages at the end that stay as they are if possible, and in any case.
RECENT = 6
LAST = 2
#: What the protocol adds to a message, in tokens.
EACH = 8


@dataclass(frozen=True)
class Room:
    """`context` is what the model can take, `reply` what of that is for its answer. In tokens."""

    context: int
    reply: int

    @property
    def prompt(self) -> int:
        return self.context - self.reply


class Conversation:
    """Append-only; `compacts` says whether old messages may be sent in short. `turn` is the reply that comes next."""

    def __init__(self, room: Room, tools: tuple[dict[str, Any], ...] = (), *, compacts: bool) -> None:
        self.messages: list[Message] = []
        self.turn = 1
        self._room, self._compacts = room, compacts
        self._schemas = len(json.dumps(tools)) if tools else 0
        self._ratio = CHARACTERS_PER_TOKEN

    def add(self, message: Message) -> None:
        self.messages.append(message)

    def add_reply(self, reply: Message) -> None:
        """What the model said to `prompt()`; its usage corrects the estimate."""
        counted = reply.usage.prompt_tokens
        if counted:
            self._ratio = max(1.0, self._characters(self.prompt()) / counted)
        self.messages.append(reply)
        self.turn += 1

    def prompt(self) -> tuple[Message, ...]:
        """What goes to the model now."""
        return as_sent(tuple(self.messages), self.turn)

    def tokens(self) -> int:
        """Estimate for `prompt()`."""
        return int(self._characters(self.prompt()) / self._ratio)

    def fits(self) -> bool:
        """Whether the prompt has its room, after compacting if need be and allowed."""
        if self.tokens() > self._room.prompt and self._compacts:
            self._compact()
        return self.tokens() <= self._room.prompt

    def tighten(self) -> bool:
        """A server found the prompt too long: less room from now on. False where nothing more can be left out."""
        before = self._characters(self.prompt())
        self._room = Room(min(self._room.context, self.tokens()) * 6 // 10 + self._room.reply, self._room.reply)
        return self._compacts and self.fits() and self._characters(self.prompt()) < before

    def _compact(self) -> None:
        """Observations first, oldest first; then what the model wrote; then recent ones, if there is no other way.

        System text, task, what the user says, and the last messages stay.
        """
        roomy, tight = int(self._room.prompt * LEAVES), self._room.prompt
        for role, kept, wanted in (
            ("tool", RECENT, roomy),
            ("assistant", RECENT, roomy),
            ("tool", LAST, tight),
            ("assistant", LAST, tight),
        ):
            for place, message in enumerate(self.messages[:-kept]):
                if self.tokens() <= wanted:
                    break
                if message.role == role and not message.short_from:
                    self.messages[place] = msgspec.structs.replace(message, short_from=self.turn)

    def _characters(self, messages: tuple[Message, ...]) -> int:
        each = int(EACH * self._ratio)
        return self._schemas + sum(_length(message) + each for message in messages)


def _length(message: Message) -> int:
    return len(message.content) + sum(len(call.name) + len(call.arguments) + 40 for call in message.tool_calls)
