"""Which module classes a text holds, and where they are now in a text that does not parse at the moment."""

from __future__ import annotations

import re
from dataclasses import replace

from kernel_assistant.errors import UsageError
from kernel_assistant.source.find import ModuleClass, find_modules

#: At the beginning of a line, whatever ends the line before: `^` knows one line end only.
_CLASS = re.compile(r"(?<![^\r\n])[ \t]*class[ \t]+(\w+)")


def classes_of(text: str, path: str) -> tuple[ModuleClass, ...] | None:
    """Module classes with a `forward`, None where `text` is not Python at the moment."""
    try:
        return tuple(found for found in find_modules(text, path) if found.has_forward)
    except UsageError:
        return None


def moved(classes: tuple[ModuleClass, ...], before: str, after: str) -> tuple[ModuleClass, ...]:
    """`classes` of the text `before` where their class lines are in `after`; those that are gone are left out.

    The second class of one name is looked for as the second there.
    """
    old, new = _statements(before), _statements(after)
    found = []
    for one in classes:
        lines = [line for line in old.get(one.name, ()) if line >= one.line]
        place = old[one.name].index(lines[0]) if lines else -1
        there = new.get(one.name, [])
        if 0 <= place < len(there):
            shift = there[place] - lines[0]
            found.append(replace(one, line=max(1, one.line + shift), end_line=one.end_line + shift))
    return tuple(found)


def why_not(one: ModuleClass) -> str:
    """Why a class cannot be optimized where it stands, "" if it can."""
    if one.addressable:
        return ""
    return f"{one.name} is inside a function or a class, or a later class has its name: move or rename it"


def _statements(text: str) -> dict[str, list[int]]:
    """Class name → the lines (from 1) on which classes of it begin."""
    found: dict[str, list[int]] = {}
    line, last = 1, 0
    for match in _CLASS.finditer(text):
        line += _line_ends(text, last, match.start())
        last = match.start()
        found.setdefault(match[1], []).append(line)
    return found


def _line_ends(text: str, start: int, end: int) -> int:
    return text.count("\n", start, end) + text.count("\r", start, end) - text.count("\r\n", start, end)
