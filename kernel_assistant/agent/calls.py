"""What a reply asks for: tool calls in OpenAI's form, or in that of Hermes inside the text. Pure.

Both are the same afterwards. Whatever is wrong with a call becomes its `problem`, for the model to read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, replace

import msgspec

from kernel_assistant.records.transcript import Message, ToolCall
from kernel_assistant.serving.template import CALL_END, CALL_START

MOST_CALLS = 16
_HERMES = re.compile(f"{re.escape(CALL_START)}(.*?)(?:{re.escape(CALL_END)}|\\Z)", re.DOTALL)
_FENCE = re.compile(r"^```[\w+]*[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
_PLAN = re.compile(r"^plan:[ \t]*(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Call:
    """`arguments` is JSON text. A call with a `problem` is not done; an `answerable` one can be answered by its id."""

    id: str
    name: str
    arguments: str
    problem: str = ""
    answerable: bool = True


def with_calls(reply: Message) -> Message:
    """The reply with Hermes calls of its text as tool calls, where they can be read and no others are there."""
    if reply.tool_calls or CALL_START not in reply.content:
        return reply
    found = _hermes_calls(reply.content)
    if any(call.problem for call in found):
        return reply
    calls = tuple(ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in found)
    return msgspec.structs.replace(reply, content=reply.content.partition(CALL_START)[0].rstrip(), tool_calls=calls)


def calls_of(reply: Message, known: Collection[str]) -> list[Call]:
    """The calls of a reply, in order; at most 16 are done."""
    calls = [Call(call.id, call.name, call.arguments) for call in reply.tool_calls]
    if not calls:
        # Left in the text because one of them cannot be read: none can be answered by its id.
        calls = [replace(call, answerable=False) for call in _hermes_calls(reply.content)]
    return [_checked(call, place, known) for place, call in enumerate(calls)]


def code_of(reply: str) -> str | None:
    """The last fenced block of a reply, None if there is none."""
    blocks = _FENCE.findall(reply)
    return str(blocks[-1]) if blocks else None


def plan_of(reply: str) -> str | None:
    """The text behind `plan:`, None if there is none."""
    found = _PLAN.search(reply)
    return found[1] if found else None


def _hermes_calls(text: str) -> list[Call]:
    return [_hermes_call(f"call_{place}", found[1].strip()) for place, found in enumerate(_HERMES.finditer(text))]


def _hermes_call(identity: str, body: str) -> Call:
    try:
        call = json.loads(body)
    except ValueError as error:
        return Call(identity, "", "{}", f"the tool call is not JSON: {error}", answerable=False)
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return Call(identity, "", "{}", 'a tool call is an object with "name" and "arguments"', answerable=False)
    arguments = call.get("arguments", {})
    # Some models write the object as a string, as OpenAI's form has it.
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return Call(identity, call["name"], written)


def _checked(call: Call, place: int, known: Collection[str]) -> Call:
    problem = call.problem
    if not problem and call.name not in known:
        problem = f"there is no tool {call.name!r}; there are: {', '.join(known)}"
    if not problem and place >= MOST_CALLS:
        problem = f"not done: at most {MOST_CALLS} calls in one reply"
    return replace(call, problem=problem)
