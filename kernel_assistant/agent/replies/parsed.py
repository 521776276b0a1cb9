"""One tool call of a reply, whatever form the model wrote it in."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

#: Accepts line ends inside strings, which models write in sources.
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True)
class ParsedCall:
    """One tool call; `arguments` is JSON text. A call with a `problem` is not run. An `answerable` one has an id
    that a tool message can answer."""

    id: str
    name: str
    arguments: str
    problem: str = ""
    answerable: bool = True


def unreadable(problem: str) -> ParsedCall:
    """A call of which nothing but its problem is known."""
    return ParsedCall("", "", "{}", problem, answerable=False)


def from_json(text: str, begin: int) -> tuple[list[ParsedCall], int]:
    """The calls in the JSON value at `begin`, an object or a list of objects, and where it ends: {"name": …,
    "arguments": …}, of which "parameters" is Llama's word for the second."""
    value, end = value_at(text, begin)
    if isinstance(value, ValueError):
        return [unreadable(f"the tool call is not JSON: {value}")], end
    listed = value if isinstance(value, list) and value else [value]
    return [_from_object(one) for one in listed], end


def value_at(text: str, begin: int) -> tuple[Any, int]:
    """The JSON value behind the white space at `begin`, and where it ends; the error if it is none."""
    while begin < len(text) and text[begin].isspace():
        begin += 1
    try:
        return _DECODER.raw_decode(text, begin)
    except ValueError as error:
        return error, len(text)


def from_values(name: str, arguments: Any) -> ParsedCall:
    """The call of a tool with these arguments. Some models write the object as a string, as OpenAI's form has it."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ParsedCall("", name, written)


def named_values(text: str, names: Iterable[tuple[str, int]]) -> list[ParsedCall]:
    """Calls of tools of which each name has its arguments as JSON behind it, from the position that comes with the
    name. A name inside the arguments of another is none."""
    found: list[ParsedCall] = []
    read_until = 0
    for name, begin in names:
        if begin < read_until:
            continue
        value, read_until = value_at(text, begin)
        if isinstance(value, ValueError):
            found.append(unreadable(f"the arguments of {name} are not JSON: {value}"))
            break
        found.append(from_values(name, value))
    return found


def _from_object(call: Any) -> ParsedCall:
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return unreadable('a tool call is an object with "name" and "arguments"')
    return from_values(call["name"], call.get("arguments", call.get("parameters", {})))
