"""One tool call of a reply: the same record for all syntaxes in which models write calls."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

#: Accepts line ends inside strings, which models write in sources.
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True)
class ParsedCall:
    """One tool call of a reply; `arguments` is JSON text. A call whose `problem` is not "" is not run. An `answerable`
    call has an id to which a tool message can refer."""

    id: str
    name: str
    arguments: str
    problem: str = ""
    answerable: bool = True


def unreadable(problem: str) -> ParsedCall:
    """Returns a call without name and arguments that stands for text that could not be read as a call; `problem` says
    why."""
    return ParsedCall("", "", "{}", problem, answerable=False)


def from_json(text: str, begin: int) -> tuple[list[ParsedCall], int]:
    """Returns the calls in the JSON value at index `begin`, and the index at which the value ends.

    The value is an object {"name": …, "arguments": …} or a list of such objects; Llama writes "parameters" instead of
    "arguments". If it cannot be read, returns one call with a problem.
    """
    value, end = value_at(text, begin)
    if isinstance(value, ValueError):
        return [unreadable(f"the tool call is not JSON: {value}")], end
    listed = value if isinstance(value, list) and value else [value]
    return [_from_object(one) for one in listed], end


def value_at(text: str, begin: int) -> tuple[Any, int]:
    """Returns the JSON value after the white space at index `begin`, and the index at which it ends. If there is no
    valid JSON, returns the ValueError and the length of the text."""
    while begin < len(text) and text[begin].isspace():
        begin += 1
    try:
        return _DECODER.raw_decode(text, begin)
    except ValueError as error:
        return error, len(text)


def from_values(name: str, arguments: Any) -> ParsedCall:
    """Returns a call of the tool `name`. `arguments` are a dict, or JSON text, because some models write a string as
    OpenAI's API does."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ParsedCall("", name, written)


def named_values(text: str, names: Iterable[tuple[str, int]]) -> list[ParsedCall]:
    """Returns a call for each pair in `names`: a tool's name, and the index in `text` at which its arguments begin, as
    JSON. A name inside the arguments of another call is skipped."""
    calls: list[ParsedCall] = []
    read_until = 0
    for name, begin in names:
        if begin < read_until:
            continue
        value, read_until = value_at(text, begin)
        if isinstance(value, ValueError):
            calls.append(unreadable(f"the arguments of {name} are not JSON: {value}"))
            break
        calls.append(from_values(name, value))
    return calls


def _from_object(call: Any) -> ParsedCall:
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return unreadable('a tool call is an object with "name" and "arguments"')
    return from_values(call["name"], call.get("arguments", call.get("parameters", {})))
