"""Wraps lines to a width in cells. Pure."""

from __future__ import annotations

import re

from rich.cells import cell_len, get_character_cell_size

#: Characters of one cell each: ASCII, European letters, dashes, quotes and dots. Others are looked up.
_SINGLE = re.compile(r"[ -~¡-¬®-ʯ‐-‧]*")


def wrapped(text: str, width: int) -> list[tuple[int, int]]:
    """Return (start, end) of each row of `text`. There is at least one row, and the rows cover all characters."""
    count = len(text)
    if width <= 0 or not count:
        return [(0, count)]
    rows: list[tuple[int, int]] = []
    start = 0
    if _SINGLE.fullmatch(text) is not None:
        # A fast path without a call for each row: opening a job wraps thousands of lines.
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
    """Return the end of the part of `text` that begins at `start` and fits into `width` cells; it has at least one
    character."""
    cells = 0
    for index in range(start, len(text)):
        cells += get_character_cell_size(text[index])
        if cells > width:
            return max(index, start + 1)
    return len(text)
