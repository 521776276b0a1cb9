"""Computes the new line numbers of the classes in a text that was edited and not parsed again yet. Pure functions."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kernel_assistant.source.find import ModuleClass
from kernel_assistant.source.outline import Outline, SyntaxFault
from kernel_assistant_lsp.text.snapshot import Snapshot

#: A class statement at the start of a line. `^` would know only one kind of line end.
_CLASS = re.compile(r"(?<![^\r\n])[ \t]*class[ \t]+(\w+)")


def moved(known: Outline, before: Snapshot, after: Snapshot) -> Outline:
    """Returns the outline `known` (classes and syntax errors) of the text `before`, with the line numbers that its
    classes have in `after`, and without deleted classes.

    Classes of the same name are matched in order: the second one of `before` with the second one of `after`.
    """
    if before.text == after.text:
        return known
    change = _change(before, after)
    around = [one for one in known.classes if change.touches(one.line, one.end_line)]
    kept = _kept_classes(around, change, before, after)
    now = (change.shifted(one, kept) for one in known.classes)
    left = tuple(one for one in now if one is not None)
    return Outline(left, tuple(change.of_fault(fault) for fault in known.faults))


def why_not(one: ModuleClass) -> str:
    """Return why a class cannot be optimized because of its position in the file, "" if it can."""
    if one.addressable:
        return ""
    return f"{one.name} is inside a function or a class, or a later class has its name: move or rename it"


def in_words(fault: SyntaxFault) -> str:
    """Return a syntax error as text, such as `syntax error on line 14: '(' was never closed`."""
    return f"syntax error on line {fault.line}: {fault.message}"


@dataclass(frozen=True)
class _Change:
    """An edit of the lines `first` to `last` (from 1). `lines` is the number of lines that it added, negative if it
    removed lines."""

    first: int
    last: int
    lines: int

    def touches(self, first: int, last: int) -> bool:
        return first <= self.last and self.first <= last

    def shifted(self, one: ModuleClass, kept: dict[ModuleClass, ModuleClass]) -> ModuleClass | None:
        """Returns the class with its line numbers after the edit, None if it is gone. `kept` maps each class that the
        edit touched to its new version."""
        if one.end_line < self.first or (one.line > self.last and not self.lines):
            return one
        if one.line <= self.last:
            return kept.get(one)
        return replace(one, line=one.line + self.lines, end_line=one.end_line + self.lines)

    def of_fault(self, fault: SyntaxFault) -> SyntaxFault:
        first, line = (here + (self.lines if here > self.last else 0) for here in (fault.first, fault.line))
        last = fault.last + (self.lines if fault.last >= self.first else 0)
        return replace(fault, first=first, line=line, last=max(first, last))


def _change(before: Snapshot, after: Snapshot) -> _Change:
    old, new = before.text, after.text
    head = _common(old, new)
    tail = min(_common_tail(old, new), min(len(old), len(new)) - head)
    first = bisect.bisect_right(before.starts, head)
    # One line more: a line end that the edit touched may not count as one in the other text.
    last = min(bisect.bisect_right(before.starts, len(old) - tail) + 1, len(before.starts))
    return _Change(max(1, first - 1), last, len(after.starts) - len(before.starts))


def _common(one: str, other: str) -> int:
    """Return the length of the common prefix, by binary search: comparing single characters would take a tenth of a
    second."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_tail(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle - 1
    return low


def _kept_classes(
    around: Iterable[ModuleClass], change: _Change, before: Snapshot, after: Snapshot
) -> dict[ModuleClass, ModuleClass]:
    """Return a map from each edited class that still exists to its version with new lines."""
    around = list(around)
    if not around:
        return {}
    first = min(change.first, *(one.line for one in around))
    last = max(change.last, *(one.end_line for one in around))
    old, new = _statements(before, first, last), _statements(after, first, last + change.lines)
    kept = {}
    for one in around:
        lines = [line for line in old.get(one.name, ()) if line >= one.line]
        index = old[one.name].index(lines[0]) if lines else -1
        there = new.get(one.name, [])
        if 0 <= index < len(there):
            line = max(1, one.line + there[index] - lines[0])
            kept[one] = replace(one, line=line, end_line=max(line, one.end_line + change.lines))
    return kept


def _statements(snapshot: Snapshot, first: int, last: int) -> dict[str, list[int]]:
    """Return a map from class name to the lines (from 1) of its class statements between the lines `first` and
    `last`."""
    lines: dict[str, list[int]] = {}
    start = snapshot.starts[first - 1]
    end = snapshot.line_end(min(max(last, first), len(snapshot.starts)) - 1)
    for match in _CLASS.finditer(snapshot.text, start, end):
        lines.setdefault(match[1], []).append(bisect.bisect_right(snapshot.starts, match.start()))
    return lines
