"""One document at one moment: what every pure function of the server works on."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lsprotocol.types import Position, Range

#: Line ends as the protocol counts them; `str.splitlines` knows more of them, which no editor does.
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Snapshot:
    """A document's text, and how its client counts.

    `version` is the client's, None for a file that is read from disk. `encoding` is what `character` of a position
    counts: "utf-8" (bytes), "utf-16" (code units) or "utf-32" (code points). Offsets index `text`.
    """

    uri: str
    path: Path
    text: str
    version: int | None
    encoding: str = "utf-16"

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Offset at which each line begins; a text that ends with a line end has an empty last line."""
        return (0, *(found.end() for found in _LINE_END.finditer(self.text)))

    def line(self, number: int) -> str:
        """Line `number` (from 0) without its end, "" behind the last."""
        if not 0 <= number < len(self.starts):
            return ""
        return self.text[self.starts[number] : self.line_end(number)]

    def line_end(self, number: int) -> int:
        """Offset behind the last character of line `number`, its line end left out."""
        if number + 1 >= len(self.starts):
            return len(self.text)
        end = self.starts[number + 1] - 1
        return end - 1 if self.text[end - 1 : end + 1] == "\r\n" else end

    def position(self, offset: int) -> Position:
        """Of an offset; one outside the text is moved to its nearer end."""
        offset = min(max(offset, 0), len(self.text))
        line = bisect.bisect_right(self.starts, offset) - 1
        return Position(line, units(self.text[self.starts[line] : offset], self.encoding))

    def offset(self, position: Position) -> int:
        """Of a position; one behind the end of its line, or behind the last line, means that end."""
        if position.line >= len(self.starts):
            return len(self.text)
        start = self.starts[max(position.line, 0)]
        line = self.text[start : self.line_end(max(position.line, 0))]
        return start + _characters(line, position.character, self.encoding)

    def range(self, start: int, end: int) -> Range:
        """Of two offsets."""
        return Range(self.position(start), self.position(end))

    def lines(self, first: int, last: int) -> Range:
        """Of whole lines, 1-based and inclusive as syntax trees count them, without the last line's end."""
        last = min(last, len(self.starts))
        return self.range(self.starts[max(min(first, last), 1) - 1], self.line_end(last - 1))


def units(text: str, encoding: str) -> int:
    """Length of `text` in the client's units."""
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    if encoding == "utf-16" and not text.isascii():
        return len(text) + sum(character > "\uffff" for character in text)
    return len(text)


def _characters(line: str, count: int, encoding: str) -> int:
    """How many characters of `line` take up `count` units; a count inside a character means its start."""
    if encoding == "utf-32" or line.isascii():
        return min(max(count, 0), len(line))
    used = 0
    for index, character in enumerate(line):
        used += units(character, encoding)
        if used > count:
            return index
    return len(line)
