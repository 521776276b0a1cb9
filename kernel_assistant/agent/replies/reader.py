"""Splits a reply as the model wrote it into reasoning, text, and tool calls in any known syntax. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernel_assistant.agent.replies.forms import AROUND, FORMS, MESSAGE, harmony, objects, pythonic
from kernel_assistant.agent.replies.parsed import ParsedCall
from kernel_assistant.agent.replies.reasoning import without_reasoning


@dataclass(frozen=True)
class ReadReply:
    """A reply, split. `text` is the text before the calls, without the reasoning; `calls` are in order."""

    reasoning: str
    text: str
    calls: tuple[ParsedCall, ...] = ()


def read(content: str) -> ReadReply:
    """Splits a reply into reasoning, text and calls. Calls that cannot be read are included only if no call can be
    read, because a text may merely mention the tags."""
    if MESSAGE in content:
        reasoning, text, calls = harmony(content)
        return ReadReply(reasoning, text, _numbered(calls))
    reasoning, text = without_reasoning(content)
    tags = {text.index(tag): tag for tag in FORMS if tag in text}
    if tags:
        first = tags[min(tags)]
        calls = FORMS[first](text)
        readable = [call for call in calls if not call.problem]
        return ReadReply(reasoning, _before(text, first), _numbered(readable or calls))
    calls = objects(text) if text.lstrip().startswith(("{", "[")) else []
    calls = calls or pythonic(text)
    return ReadReply(reasoning, "" if calls else text, _numbered(calls))


def _before(text: str, tag: str) -> str:
    before = text.partition(tag)[0]
    for around in AROUND:
        before = before.partition(around)[0]
    return before.rstrip()


def _numbered(calls: list[ParsedCall]) -> tuple[ParsedCall, ...]:
    return tuple(replace(call, id=f"call_{index}") for index, call in enumerate(calls))
