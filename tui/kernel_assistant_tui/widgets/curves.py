"""The curves of a stage, as many beside each other as there is room for. Pure."""

from __future__ import annotations

from textual.content import Content

from kernel_assistant_tui.runs.metrics import Stage, thinned
from kernel_assistant_tui.widgets.chart import Series, chart, plainly
from kernel_assistant_tui.widgets.glyphs import clean, utf8

#: Cells of one chart at least, and lines.
NARROW, HIGH = 42, 10
_STYLES = ("$text-primary", "$text-success", "$text-warning", "$text-accent")


def curve_lines(stage: Stage, width: int) -> list[Content]:
    """A chart for each figure, with its newest value above it; one with a single value has no curve."""
    columns = max(1, width // NARROW)
    room = width // columns - 2
    blocks = [_block(stage, name, room, number) for number, name in enumerate(stage.names())]
    lines: list[Content] = []
    for start in range(0, len(blocks), columns):
        row = blocks[start : start + columns]
        for place in range(max(map(len, row))):
            cells = [block[place] if place < len(block) else Content("") for block in row]
            lines.append(Content("").join(_padded(cell, room + 2) for cell in cells))
        lines.append(Content(""))
    return lines


def is_share(name: str) -> bool:
    """By its name, as docs/training_metrics.md says."""
    return name == "answer_right" or (name.endswith(("_rate", "_share")) and name != "learning_rate")


def _block(stage: Stage, name: str, width: int, number: int) -> list[Content]:
    points = sorted(stage.curves[name].items())
    newest = points[-1][1]
    shown = f"{newest:.1%}" if is_share(name) else f"{newest:.5g}"
    head = Content.assemble((clean(name.replace("_", " ")), "bold"), f"  {shown}")
    if len(points) < 2:
        return [head]
    series = Series(name, thinned(points, 8 * width), _STYLES[number % len(_STYLES)])
    label = _per_cent if is_share(name) else plainly
    return [head, *chart([series], width, HIGH, braille=utf8(), label=label, across="steps", legend=False)]


def _per_cent(value: float) -> str:
    """Of an axis, which reaches a little further than what can be."""
    return f"{min(value, 1.0):.0%}"


def _padded(cell: Content, width: int) -> Content:
    return cell.truncate(width).extend_right(max(0, width - cell.cell_length))
