"""Where a line is broken for a width of so many cells. Pure."""

from __future__ import annotations

import re

from rich.cells import cell_len, get_character_cell_size

#: Characters of one cell each: ASCII, letters of Europe, dashes, quotes and dots. Others are looked up.
_SINGLE = re.compile(r"[ -~¡-¬®-ʯ‐-‧]*")


def wrapped(text: str, width: int) -> list[tuple[int, int]]:
    """(start, end) of each row, at least one; every character is in one of them."""
    count = len(text)
    if width <= 0 or not count:
        return [(0, count)]
    rows: list[tuple[int, int]] = []
    start = 0
    if _SINGLE.fullmatch(text) is not None:
        # Thousands of lines are laid out when a job is opened: no call for each row.
        half = width // 2
        while count - start > width:
            end = text.rfind(" ", start + half, start + width) + 1
            end = end if end > start + 1 else start + width
            rows.append((start, end))
            start = end
        rows.append((start, count))
        return rows
    if cell_len(text) <= width:
        return [(0, count)]
    while start < len(text):
        end = _reach(text, start, width)
        if end < len(text):
            space = text.rfind(" ", start + width // 2, end)
            end = space + 1 if space > start else end
        rows.append((start, end))
        start = end
    return rows


def _reach(text: str, start: int, width: int) -> int:
    """The end of what fits; one character at least."""
    cells = 0
    for place in range(start, len(text)):
        cells += get_character_cell_size(text[place])
        if cells > width:
            return max(place, start + 1)
    return len(text)
