"""Where a line is broken for a width of so many cells. Pure."""

from __future__ import annotations

from rich.cells import cell_len, get_character_cell_size


def wrapped(text: str, width: int) -> list[tuple[int, int]]:
    """(start, end) of each row, at least one; every character is in one of them."""
    if width <= 0 or (text.isascii() and len(text) <= width) or cell_len(text) <= width:
        return [(0, len(text))]
    rows: list[tuple[int, int]] = []
    start = 0
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
    if text.isascii():
        return min(start + width, len(text))
    cells = 0
    for place in range(start, len(text)):
        cells += get_character_cell_size(text[place])
        if cells > width:
            return max(place, start + 1)
    return len(text)
