"""What of a conversation's messages watchers are told while it goes on."""

from __future__ import annotations

from kernel_assistant.events import Called, ModelSaid
from kernel_assistant.records.transcript import Message

#: Characters of a text, and of a call's arguments: every event stays in the host's memory until its job ends.
MOST_TEXT, MOST_ARGUMENTS = 6000, 6000


def said(message: Message, conversation: int, turn: int) -> ModelSaid | None:
    """The event for `message`; None for the system's text, which is the same for every task."""
    if message.role == "system":
        return None
    return ModelSaid(
        conversation=conversation,
        turn=turn,
        role=message.role,
        text=_cut(message.content, MOST_TEXT),
        calls=tuple(
            Called(name=call.name, arguments=_cut(call.arguments, MOST_ARGUMENTS)) for call in message.tool_calls
        ),
        candidate=message.candidate,
        tokens=message.usage.completion_tokens,
        seconds=message.usage.seconds,
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} [… {len(text)} characters]"
