"""Draws curves with characters: braille dots if the terminal can show them, else ASCII letters. Pure functions.

plotext would need a compiled library and a second to load, textual-plot would need numpy: docs/dependencies.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from textual.content import Content

Point = tuple[float, float]
#: Bits of the dots of a braille character, by column (2) and row (4) (Unicode 16.0, Braille Patterns).
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_LETTERS = "*o+x#@"
_FRAME = "$text 60%"


@dataclass(frozen=True)
class Series:
    """A curve. `steps` makes it a step function, which is constant until the next point."""

    name: str
    points: Sequence[Point]
    style: str
    steps: bool = False


@dataclass(frozen=True)
class Frame:
    """The ranges of both axes of a chart."""

    left: float
    right: float
    low: float
    high: float

    @classmethod
    def around(cls, points: Sequence[Point], level: float | None) -> Frame:
        across = [x for x, _ in points]
        up = [y for _, y in points] + ([] if level is None else [level])
        low, high = min(up), max(up)
        room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
        return cls(min(across), max(across), max(low - room, 0.0) if low >= 0 else low - room, high + room)

    def place(self, point: Point, columns: int, rows: int) -> tuple[int, int]:
        """Return the column (from the left) and row (from the top) of a point in a grid of `columns` × `rows`."""
        across = (point[0] - self.left) / ((self.right - self.left) or 1.0)
        up = (point[1] - self.low) / (self.high - self.low)
        return round(across * (columns - 1)), round((1 - up) * (rows - 1))


def plainly(value: float) -> str:
    """Format a number with three digits, without an exponent from 1000 to ten million."""
    return f"{value:.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def chart(
    series: Sequence[Series],
    width: int,
    height: int,
    *,
    braille: bool,
    label: Callable[[float], str] = plainly,
    across: str = "",
    level: float | None = None,
    legend: bool = True,
) -> list[Content]:
    """Return `height` lines of `width` cells: the legend, the curves with the highest and lowest value at the left,
    and the range of x with its unit `across`. `level` is drawn as a dotted line. Return [] if the room is too
    small or there are no finite points."""
    kept = [Series(one.name, _finite(one.points), one.style, one.steps) for one in series]
    kept = [one for one in kept if one.points]
    if not kept or height < 5 or width < 24:
        return []
    frame = Frame.around([point for one in kept for point in one.points], level)
    rows = height - 1 - legend
    beside = [label(frame.high), *([""] * (rows - 2)), label(frame.low)]
    dotted = None if level is None else frame.place((frame.left, level), 1, rows)[1]
    if level is not None and dotted is not None:
        beside[dotted] = label(level)
    margin = max(map(len, beside))
    columns = width - margin - 1
    cells = _cells(kept, frame, columns, rows, braille)
    bar = "│" if braille else "|"
    lines = [_legend(kept, braille, width)] if legend else []
    for row in range(rows):
        drawn: list[Content | str] = [Content.styled(f"{beside[row]:>{margin}}{bar}", _FRAME)]
        drawn += [_cell(cells.get((column, row)), kept, row == dotted, column, braille) for column in range(columns)]
        lines.append(Content("").join(drawn))
    left, right = f"{frame.left:g}", f"{frame.right:g} {across}".rstrip()
    gap = max(1, columns - len(left) - len(right))
    lines.append(Content.styled((" " * (margin + 1) + left + " " * gap + right)[:width], _FRAME))
    return lines


def _cells(
    series: Sequence[Series], frame: Frame, columns: int, rows: int, braille: bool
) -> dict[tuple[int, int], tuple[int, int]]:
    """Returns a map from (column, row) of a character cell to (bit mask of its braille dots, index of the series). A
    later series covers an earlier one."""
    wide, tall = (2, 4) if braille else (1, 1)
    cells: dict[tuple[int, int], tuple[int, int]] = {}
    for number, one in enumerate(series):
        corners = list(_corners(one))
        positions = [frame.place(point, columns * wide, rows * tall) for point in corners]
        for start, end in zip(positions, positions[1:] or positions, strict=False):
            for column, row in _line(start, end):
                key = (column // wide, row // tall)
                before, owner = cells.get(key, (0, number))
                bit = _DOTS[column % wide][row % tall] if braille else 1
                cells[key] = ((before if owner == number else 0) | bit, number)
    return cells


def _cell(
    cell: tuple[int, int] | None, series: Sequence[Series], dotted: bool, column: int, braille: bool
) -> Content | str:
    if cell is None:
        if dotted and column % 2:
            return Content.styled("·" if braille else ".", _FRAME)
        return " "
    dots, number = cell
    character = chr(0x2800 + dots) if braille else _LETTERS[number % len(_LETTERS)]
    return Content.styled(character, series[number].style)


def _legend(series: Sequence[Series], braille: bool, width: int) -> Content:
    parts: list[Content | str] = []
    for number, one in enumerate(series):
        mark = "━" if braille else _LETTERS[number % len(_LETTERS)]
        parts += ["  " if parts else "", Content.styled(f"{mark} {one.name}", one.style)]
    return Content("").join(parts).truncate(width)


def _corners(series: Series) -> Iterator[Point]:
    if not series.steps:
        yield from series.points
        return
    before = series.points[0]
    yield before
    for point in series.points[1:]:
        if point[1] != before[1]:
            yield point[0], before[1]
            yield point
            before = point
    yield series.points[-1]


def _line(start: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the (column, row) of the dots on a line, both ends included, one for each step along its longer side."""
    count = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    for step in range(count + 1):
        share = step / count
        yield round(start[0] + share * (end[0] - start[0])), round(start[1] + share * (end[1] - start[1]))


def _finite(points: Sequence[Point]) -> list[Point]:
    return [point for point in points if math.isfinite(point[0]) and math.isfinite(point[1])]
