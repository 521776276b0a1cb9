"""The panes of the main screen, and the window sizes that decide how they are shown."""

from __future__ import annotations

from dataclasses import dataclass

from textual.geometry import Size

#: Width from which panes are shown side by side; below it one at a time.
WIDE = 120
#: The smallest usable window.
SMALLEST = Size(34, 9)


@dataclass(frozen=True)
class Pane:
    """A pane. `widget` is the id of its widget, `focus` the selector of the inner widget that gets the focus."""

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

#: Panes that a wide window always shows, with their keys in their frames.
SIDE_BY_SIDE = frozenset(("modules", "episode", "result", "devices"))
#: Actions left out of the footer of a narrow window, so that it has three lines; the help page has them.
NOT_IN_NARROW = frozenset(("copy", "close_tab", "palette"))


def is_wide(size: Size) -> bool:
    return size.width >= WIDE


def is_tiny(size: Size) -> bool:
    return size.width < SMALLEST.width or size.height < SMALLEST.height
