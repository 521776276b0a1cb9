"""Draws the stages of a training run with their progress."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.events import MouseEvent
from textual.style import Style

from kernel_assistant.session.training_stages import clock
from kernel_assistant_tui.runs.pipeline import StageState
from kernel_assistant_tui.widgets.glyphs import clean, glyph

#: Height of the pane in lines from which each stage has a line of its own.
TALL = 30
_MUTED = "$text 60%"
_MARKS = {
    "done": ("✓", "+", "$text-success"),
    "limit": ("✓", "+", "$text-success"),
    "running": ("▶", ">", "bold $text-primary"),
    "paused": ("‖", "|", "bold $text-warning"),
    "stopped": ("■", "=", "$text-warning"),
    "failed": ("✗", "!", "bold $text-error"),
    "died": ("✗", "!", "bold $text-error"),
}
_BAR = 20
_STAGE = "stage"


def clickable(content: Content, stage: str) -> Content:
    """Attaches the name of a stage to `content`. A mouse click on the text then tells the stage: `stage_at` reads
    it."""
    return content.stylize(Style.from_meta({_STAGE: stage}))


def stage_at(event: MouseEvent) -> str:
    """Return the stage under the mouse, "" if there is none."""
    return str(event.style.meta.get(_STAGE, ""))


def stage_lines(stages: Sequence[StageState], chosen: str, width: int, height: int) -> list[Content]:
    """Return one line for each stage if there is room; otherwise put as many stages into a line as fit."""
    if height >= TALL:
        size = max((len(one.name) for one in stages), default=0)
        return [_row(one, chosen, size, width) for one in stages]
    lines = [Content("")]
    for one in stages:
        part = _part(one, chosen)
        if lines[-1].cell_length + part.cell_length + 2 > width and lines[-1].plain:
            lines.append(Content(""))
        lines[-1] = lines[-1] + Content("  ") + part if lines[-1].plain else part
    return lines


def _part(stage: StageState, chosen: str) -> Content:
    mark, style = _mark(stage)
    spent = f" {clock(stage.seconds)}" if stage.begun else ""
    of_limit = f"/{clock(stage.limit)}" if stage.state in ("running", "paused") and stage.limit else ""
    part = Content.assemble((mark, style), " ", _name(stage, chosen), (spent + of_limit, _MUTED))
    return clickable(part, stage.name)


def _row(stage: StageState, chosen: str, size: int, width: int) -> Content:
    mark, style = _mark(stage)
    state = "done at its limit" if stage.state == "limit" else stage.state
    times = f"{clock(stage.seconds) if stage.begun else '':>8} of {clock(stage.limit):<8}"
    share = min(1.0, stage.seconds / stage.limit) if stage.limit else 0.0
    full = round(share * _BAR)
    bar = Content.styled(glyph("█", "#") * full, "$primary") + Content.styled(glyph("░", ".") * (_BAR - full), _MUTED)
    gap = " " * (size - len(stage.name))
    line = Content.assemble(
        (mark, style), " ", _name(stage, chosen), gap, (times, _MUTED), " ", bar, "  ", (state, style)
    )
    return clickable(line.truncate(width), stage.name)


def _name(stage: StageState, chosen: str) -> tuple[str, str]:
    return clean(stage.name), "bold reverse" if stage.name == chosen else "bold" if stage.begun else _MUTED


def _mark(stage: StageState) -> tuple[str, str]:
    beautiful, plain, style = _MARKS.get(stage.state, ("·", "-", _MUTED))
    return glyph(beautiful, plain), style
