"""Which panes there are, and how a window of a size shows them."""

from __future__ import annotations

from dataclasses import dataclass

from textual.geometry import Size

#: Side by side from here on, one pane at a time below.
WIDE = 120
#: Below this nothing can be worked with.
SMALLEST = Size(34, 9)


@dataclass(frozen=True)
class Pane:
    """`widget` is the id of the widget that shows it, `focus` a selector of what takes the keys in it."""

    name: str
    widget: str
    focus: str


PANES = {
    pane.name: pane
    for pane in (
        Pane("modules", "modules", "#module-rows"),
        Pane("episode", "middle", "#episode-lines"),
        Pane("result", "result", "#result"),
        Pane("devices", "devices", "#devices"),
        Pane("training", "middle", "#training"),
    )
}

#: Those that are always there in a wide window, with their keys in their frames.
SIDE_BY_SIDE = frozenset(("modules", "episode", "result", "devices"))
#: Without these the keys of a narrow window take three lines; the help page has them.
NOT_IN_NARROW = frozenset(("copy", "close_tab", "palette"))


def is_wide(size: Size) -> bool:
    return size.width >= WIDE


def is_tiny(size: Size) -> bool:
    return size.width < SMALLEST.width or size.height < SMALLEST.height
