"""A conversation with tools for a server that takes none: schemas in the system's text, calls and results as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from kernel_assistant.policy.client import Request
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.template import tools_text, written_text


def as_text(request: Request) -> Request:
    """The same request without tools, calls and results of tools."""
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
    """Messages of the user one behind the other as one: many chat templates want the two to alternate."""
    found: list[Message] = []
    for message in messages:
        if message.role == "user" and found and found[-1].role == "user":
            found[-1] = msgspec.structs.replace(found[-1], content=f"{found[-1].content}\n\n{message.content}")
        else:
            found.append(message)
    return found
