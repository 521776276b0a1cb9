"""Finds the lines of a profile in a text that was edited after profiling. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from kernel_assistant.records.line_profile import LineProfile, LineTime
from kernel_assistant_lsp.text.snapshot import Snapshot

_NEXT = re.compile(r"\S")


def rows_at(snapshot: Snapshot, profile: LineProfile) -> dict[int, LineTime]:
    """Return a map from a statement's first line in the document (from 0) to its times. Edited statements are left
    out."""
    begins = class_line(snapshot, profile.class_name, profile.first_line - 1)
    if begins is None:
        return {}
    old = profile.source.splitlines()
    head = next((number for number, line in enumerate(old) if _is_class(line, profile.class_name)), 0)
    start = max(0, begins - head)
    new = list(_until_next(snapshot, start, begins))
    moved: dict[int, int] = {}
    for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        moved |= {block.a + number: block.b + number for number in range(block.size)}
    rows = {}
    for row in profile.lines:
        first, last = row.line - profile.first_line, row.end_line - profile.first_line
        now = moved.get(first)
        if now is not None and all(moved.get(number) == now + number - first for number in range(first, last + 1)):
            rows[start + now] = row
    return rows


def is_edited(snapshot: Snapshot, profile: LineProfile) -> bool:
    """Return whether the class differs from the text that was profiled."""
    begins = class_line(snapshot, profile.class_name, profile.first_line - 1)
    if begins is None:
        return True
    old = profile.source.splitlines()
    head = next((number for number, line in enumerate(old) if _is_class(line, profile.class_name)), 0)
    start = max(0, begins - head)
    return [snapshot.line(start + number) for number in range(len(old))] != old


def class_line(snapshot: Snapshot, class_name: str, near: int) -> int | None:
    """Return the line (from 0) of the statement `class NAME`, None if there is none. If there are several, return the
    one nearest to line `near`."""
    pattern = re.compile(rf"^[ \t]*class[ \t]+{re.escape(class_name)}\b", re.MULTILINE)
    lines = [snapshot.position(match.end()).line for match in pattern.finditer(snapshot.text)]
    return min(lines, key=lambda line: abs(line - near), default=None)


def _is_class(line: str, class_name: str) -> bool:
    return re.match(rf"[ \t]*class[ \t]+{re.escape(class_name)}\b", line) is not None


def _until_next(snapshot: Snapshot, start: int, begins: int) -> Iterator[str]:
    """Yields the text of the lines from line `start` to the end of the class whose `class` statement is in line
    `begins` (both from 0). The class ends before the next line that is not indented deeper than its `class` statement;
    comments and closing brackets do not end it."""
    indent = len(snapshot.line(begins)) - len(snapshot.line(begins).lstrip())
    for number in range(start, len(snapshot.starts)):
        line = snapshot.line(number)
        first = _NEXT.search(line)
        if number > begins and first and first.start() <= indent and line[first.start()] not in "#)]}":
            return
        yield line
