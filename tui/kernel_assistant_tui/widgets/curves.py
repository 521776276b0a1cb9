"""Draws the curves of a training stage, with as many charts side by side as fit. Pure."""

from __future__ import annotations

from textual.content import Content

from kernel_assistant.session.training_stages import is_share
from kernel_assistant_tui.runs.metrics import Stage, thinned
from kernel_assistant_tui.widgets.chart import Series, chart, plainly
from kernel_assistant_tui.widgets.glyphs import clean, utf8

#: Smallest width of a chart in cells, and its height in lines.
NARROW, HIGH = 42, 10
_STYLES = ("$text-primary", "$text-success", "$text-warning", "$text-accent")


def curve_lines(stage: Stage, width: int) -> list[Content]:
    """Returns the lines with all metrics of a stage: for each metric its newest value and, if it has several values, a
    chart below. As many charts are side by side as fit into `width` cells."""
    columns = max(1, width // NARROW)
    room = width // columns - 2
    blocks = [_block(stage, name, room, number) for number, name in enumerate(stage.names())]
    lines: list[Content] = []
    for start in range(0, len(blocks), columns):
        row = blocks[start : start + columns]
        for index in range(max(map(len, row))):
            cells = [block[index] if index < len(block) else Content("") for block in row]
            lines.append(Content("").join(_padded(cell, room + 2) for cell in cells))
        lines.append(Content(""))
    return lines


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
    """Format a label of an axis in per cent. The axis may reach a little above 100%, its label does not."""
    return f"{min(value, 1.0):.0%}"


def _padded(cell: Content, width: int) -> Content:
    return cell.truncate(width).extend_right(max(0, width - cell.cell_length))
