"""Reads the tool calls of a reply: as fields of an OpenAI-compatible answer, or in one of the syntaxes that models
write into their text. Pure.

All become `ParsedCall`. An error in a call becomes its `problem`, which is sent to the model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace

import msgspec

from kernel_assistant.agent.replies.parsed import ParsedCall
from kernel_assistant.agent.replies.reader import read
from kernel_assistant.records.transcript import Message, ToolCall

MOST_CALLS = 16
#: A fenced block: its language and its text.
_FENCE = re.compile(r"^```([\w+]*)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
_LANGUAGES = ("c", "cc", "cpp", "c++", "cu", "cuda")
_PLAN = re.compile(r"^plan:[ \t]*(.*)$", re.MULTILINE)


def with_calls(reply: Message, known: Collection[str]) -> tuple[Message, list[ParsedCall]]:
    """Returns the reply in the form in which it is stored, and its parsed calls in order; calls after the first
    MOST_CALLS get a problem. `known` are the names of the tools.

    In the stored reply, reasoning is moved out of the text, and calls in the text have become tool calls. If one of
    these calls cannot be read, the text stays as it is.
    """
    parts = read(reply.content)
    reasoning = "\n".join(part for part in (reply.reasoning, parts.reasoning) if part)
    if reply.tool_calls or not parts.calls or any(call.problem for call in parts.calls):
        text = parts.text if parts.reasoning and not parts.calls else reply.content
        kept = msgspec.structs.replace(reply, content=text, reasoning=reasoning)
    else:
        moved = tuple(ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in parts.calls)
        kept = msgspec.structs.replace(reply, content=parts.text, reasoning=reasoning, tool_calls=moved)
    return kept, _calls(kept, parts.calls, known)


def calls_of(reply: Message, known: Collection[str]) -> list[ParsedCall]:
    """Returns the calls of a reply, in order; those after the first MOST_CALLS get a problem. `known`: names of
    tools."""
    return _calls(reply, () if reply.tool_calls else read(reply.content).calls, known)


def code_of(reply: str) -> str | None:
    """Returns the code between the last pair of ``` lines of a reply; None if there is none."""
    blocks = _FENCE.findall(reply)
    return str(blocks[-1][1]) if blocks else None


def source_of(reply: str) -> str | None:
    """Returns the last code between ``` lines that contains `launch:`. If no code does, returns the last code in C, C++
    or CUDA; without that, None."""
    blocks = [(language.lower(), code) for language, code in _FENCE.findall(reply)]
    whole = [code for _, code in blocks if "launch:" in code]
    whole = whole or [code for language, code in blocks if language in _LANGUAGES]
    return whole[-1] if whole else None


def plan_of(reply: str) -> str | None:
    """Returns the rest of the first line of a reply that begins with `plan:`; None if there is no such line. The text
    is a schedule, not a launch plan."""
    match = _PLAN.search(reply)
    return match[1] if match else None


def _calls(reply: Message, in_text: Iterable[ParsedCall], known: Collection[str]) -> list[ParsedCall]:
    calls = [ParsedCall(call.id, call.name, call.arguments) for call in reply.tool_calls]
    # Calls that stay in the text have no id to answer.
    calls = calls or [replace(call, answerable=False) for call in in_text]
    return [_checked(call, index, known) for index, call in enumerate(calls)]


def _checked(call: ParsedCall, index: int, known: Collection[str]) -> ParsedCall:
    problem = call.problem
    if not problem and call.name not in known:
        problem = f"there is no tool {call.name!r}; there are: {', '.join(known)}"
    if not problem and index >= MOST_CALLS:
        problem = f"not done: at most {MOST_CALLS} calls in one reply"
    return replace(call, problem=problem)
