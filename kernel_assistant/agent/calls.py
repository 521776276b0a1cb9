"""Reads the tool calls of a reply: in OpenAI's form, or in Hermes form inside the text. Pure.

Both give the same `ParsedCall`. An error in a call becomes its `problem`, for the model to read.
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
class ParsedCall:
    """One tool call; `arguments` is JSON text. A call with a `problem` is not run. An `answerable` one has an id
    that a tool message can answer."""

    id: str
    name: str
    arguments: str
    problem: str = ""
    answerable: bool = True


def with_calls(reply: Message) -> Message:
    """The reply with the Hermes calls of its text as tool calls. It is unchanged if it has tool calls already, or if
    one of the Hermes calls cannot be parsed.
    """
    if reply.tool_calls or CALL_START not in reply.content:
        return reply
    parsed = _hermes_calls(reply.content)
    if any(call.problem for call in parsed):
        return reply
    calls = tuple(ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in parsed)
    return msgspec.structs.replace(reply, content=reply.content.partition(CALL_START)[0].rstrip(), tool_calls=calls)


def calls_of(reply: Message, known: Collection[str]) -> list[ParsedCall]:
    """The calls of a reply, in order; those after the first 16 get a problem. `known` are the names of tools."""
    calls = [ParsedCall(call.id, call.name, call.arguments) for call in reply.tool_calls]
    if not calls:
        # One of the calls cannot be parsed, so all stay in the text, where none has an id to answer.
        calls = [replace(call, answerable=False) for call in _hermes_calls(reply.content)]
    return [_checked(call, index, known) for index, call in enumerate(calls)]


def code_of(reply: str) -> str | None:
    """The last fenced block of a reply, None if there is none."""
    blocks = _FENCE.findall(reply)
    return str(blocks[-1]) if blocks else None


def plan_of(reply: str) -> str | None:
    """The text after `plan:`, None if there is none."""
    match = _PLAN.search(reply)
    return match[1] if match else None


def _hermes_calls(text: str) -> list[ParsedCall]:
    return [_hermes_call(f"call_{index}", match[1].strip()) for index, match in enumerate(_HERMES.finditer(text))]


def _hermes_call(identity: str, body: str) -> ParsedCall:
    try:
        call = json.loads(body)
    except ValueError as error:
        return ParsedCall(identity, "", "{}", f"the tool call is not JSON: {error}", answerable=False)
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return ParsedCall(identity, "", "{}", 'a tool call is an object with "name" and "arguments"', answerable=False)
    arguments = call.get("arguments", {})
    # Some models write the object as a string, as OpenAI's form has it.
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ParsedCall(identity, call["name"], written)


def _checked(call: ParsedCall, index: int, known: Collection[str]) -> ParsedCall:
    problem = call.problem
    if not problem and call.name not in known:
        problem = f"there is no tool {call.name!r}; there are: {', '.join(known)}"
    if not problem and index >= MOST_CALLS:
        problem = f"not done: at most {MOST_CALLS} calls in one reply"
    return replace(call, problem=problem)
