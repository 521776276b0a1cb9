"""The footer: the keys of the actions that are possible now, in as many lines as they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Size
from textual.widget import Widget


@dataclass(frozen=True)
class Key:
    """A key in the footer. `action` is the Textual action of a click; `here` says that the pane of the key has the
    focus."""

    shown: str
    label: str
    action: str
    here: bool = False


class Keys(Widget):
    """The footer. It has four lines at most, enough for all keys at 80 columns."""

    COMPONENT_CLASSES = {"keys--key"}
    DEFAULT_CSS = """
    Keys {
        dock: bottom;
        height: auto;
        max-height: 4;
        background: $panel;
        color: $foreground;
        & > .keys--key { color: $accent; text-style: bold; }
    }
    """

    def __init__(self, *, id: str = "keys") -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._keys: tuple[Key, ...] = ()

    def show(self, keys: Sequence[Key]) -> None:
        if tuple(keys) != self._keys:
            self._keys = tuple(keys)
            self.refresh(layout=True)

    def render(self) -> Text:
        style = self.get_component_rich_style("keys--key", partial=True)
        pen = Style(color=style.color, bold=style.bold)
        lines = [
            Text("  ").join(
                Text.assemble((key.shown, pen), " ", (key.label, Style(reverse=key.here or None))) for key in line
            )
            for line in self._lines(self.size.width)
        ]
        return Text("\n").join(Text(" ").append_text(line) for line in lines)

    async def on_click(self, event: events.Click) -> None:
        lines = self._lines(self.size.width)
        end = 1
        for key in lines[event.y] if event.y < len(lines) else ():
            end += _width(key)
            if event.x < end:
                await self.app.run_action(key.action, self.screen)
                return

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def _lines(self, width: int) -> list[list[Key]]:
        lines: list[list[Key]] = [[]]
        used = 1
        for key in self._keys:
            needed = _width(key)
            if used + needed > width + 1 and lines[-1]:
                lines.append([])
                used = 1
            lines[-1].append(key)
            used += needed
        return lines


def _width(key: Key) -> int:
    """Return the width of a key with its label in cells, including the gap after it."""
    return cell_len(key.shown) + 1 + cell_len(key.label) + 2
