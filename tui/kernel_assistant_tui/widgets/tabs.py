"""The line of tabs: one for each open job, and one for training runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widget import Widget

from kernel_assistant_tui.widgets.glyphs import clean


@dataclass(frozen=True)
class Tab:
    """One tab. `key` is the job's number, or TRAINING."""

    key: str
    label: str


TRAINING = "training"


class JobTabs(Widget):
    """One line of tabs. The current tab is always visible; other tabs are visible as far as there is room."""

    COMPONENT_CLASSES = {"tabs--current"}
    DEFAULT_CSS = """
    JobTabs {
        height: 1;
        background: $panel;
        color: $text-muted;
        & > .tabs--current { background: $primary; color: $background; text-style: bold; }
    }
    """

    class Picked(Message):
        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, *, id: str = "tabs") -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._tabs: tuple[Tab, ...] = ()
        self._current = ""

    def show(self, tabs: Sequence[Tab], current: str) -> None:
        if (tuple(tabs), current) != (self._tabs, self._current):
            self._tabs, self._current = tuple(tabs), current
            self.refresh()

    def render(self) -> Text:
        style = self.get_component_rich_style("tabs--current", partial=True)
        pen = Style(color=style.color, bgcolor=style.bgcolor, bold=style.bold)
        text = Text(no_wrap=True, overflow="crop")
        for tab in self._visible():
            text.append(f" {clean(tab.label)} ", pen if tab.key == self._current else "")
        if len(self._tabs) < 2:
            text.append("  no job is open: choose a class and start")
        return text

    def on_click(self, event: events.Click) -> None:
        end = 0
        for tab in self._visible():
            end += cell_len(tab.label) + 2
            if event.x < end:
                self.post_message(self.Picked(tab.key))
                return

    def _visible(self) -> list[Tab]:
        """Return the tabs to draw, beginning with the first one that leaves room for the current tab."""
        index = next((at for at, tab in enumerate(self._tabs) if tab.key == self._current), 0)
        first = index
        room = self.size.width - self._width(index) if self._tabs else 0
        while first > 0 and room >= self._width(first - 1):
            first -= 1
            room -= self._width(first)
        return list(self._tabs[first:])

    def _width(self, index: int) -> int:
        return cell_len(self._tabs[index].label) + 2
