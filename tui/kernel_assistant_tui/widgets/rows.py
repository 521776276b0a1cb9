"""A list that draws only its visible lines, so that thousands of entries are not slow."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from kernel_assistant_tui.widgets.glyphs import clean

T = TypeVar("T")

#: A piece of a line: text, and the component class of its style ("" for the list's own style).
Piece = tuple[str, str]


class Rows(ScrollView, Generic[T], can_focus=True):
    """A list with one line for each item. Subclasses define the text of an item (`pieces`) and its key (`key_of`)."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--cursor", "rows--strong", "rows--dim", "rows--good", "rows--bad"} | {
        "rows--warn"
    }
    DEFAULT_CSS = """
    Rows {
        background: $surface;
        color: $foreground;
        scrollbar-size-vertical: 1;
        & > .rows--cursor { background: $panel; }
        &:focus > .rows--cursor { background: $primary-muted; }
        & > .rows--strong { text-style: bold; }
        & > .rows--dim { color: $foreground 60%; }
        & > .rows--good { color: $text-success; }
        & > .rows--bad { color: $text-error; }
        & > .rows--warn { color: $text-warning; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end", "move(1000000)", show=False),
        Binding("enter", "choose", show=False),
    ]

    cursor: reactive[int] = reactive(0, repaint=False)

    class Moved(Message):
        """Sent when the item under the cursor has changed."""

        def __init__(self, rows: Rows[Any], item: Any) -> None:
            super().__init__()
            self.rows = rows
            self.item = item

        @property
        def control(self) -> Rows[Any]:
            return self.rows

    class ItemChosen(Moved):
        """Sent on Enter, or on a second click on the item under the cursor."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self.items: tuple[T, ...] = ()

    def pieces(self, item: T, width: int) -> list[Piece]:
        """Returns the pieces of the line for `item` as (text, component class of its style), at most `width` cells
        together."""
        raise NotImplementedError

    def key_of(self, item: T) -> Hashable:
        """Return the key of an item. When the list is replaced, the cursor moves to the new item with the same key."""
        raise NotImplementedError

    @property
    def chosen(self) -> T | None:
        return self.items[self.cursor] if self.cursor < len(self.items) else None

    def show(self, items: Sequence[T]) -> None:
        """Replace the items. The cursor stays on its item if the new list contains it."""
        before = self.chosen
        self.items = tuple(items)
        index = min(self.cursor, max(len(self.items) - 1, 0))
        if before is not None:
            key = self.key_of(before)
            index = next((at for at, one in enumerate(self.items) if self.key_of(one) == key), index)
        self.virtual_size = Size(0, len(self.items))
        moved = self.cursor != index
        self.cursor = index
        if not moved and self.chosen is not before:
            self._tell()
        self.refresh()

    def choose(self, item: T) -> None:
        """Move the cursor to `item`."""
        key = self.key_of(item)
        self.cursor = next((at for at, one in enumerate(self.items) if self.key_of(one) == key), self.cursor)

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        index = y + int(self.scroll_offset.y)
        base = self.rich_style
        if index >= len(self.items):
            return Strip.blank(width, base)
        if index == self.cursor:
            base += Style(bgcolor=self.get_component_rich_style("rows--cursor", partial=True).bgcolor)
        segments = [
            Segment(clean(text), self._style(name, base)) for text, name in self.pieces(self.items[index], width)
        ]
        return Strip(segments).adjust_cell_length(width, base)

    def watch_cursor(self, before: int, now: int) -> None:
        if self.is_mounted:
            self.scroll_to_region(Region(0, now, 1, 1), animate=False)
            for index in (before, now):
                self.refresh(Region(0, index - int(self.scroll_offset.y), self.size.width, 1))
            self._tell()

    def action_move(self, by: int) -> None:
        if self.items:
            self.cursor = min(max(self.cursor + by, 0), len(self.items) - 1)

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.scrollable_content_region.height - 1))

    def action_choose(self) -> None:
        if self.chosen is not None:
            self.post_message(self.ItemChosen(self, self.chosen))

    def on_click(self, event: events.Click) -> None:
        index = event.y + int(self.scroll_offset.y)
        if index < len(self.items):
            again = index == self.cursor
            self.cursor = index
            if again:
                self.action_choose()

    def _tell(self) -> None:
        if self.chosen is not None:
            self.post_message(self.Moved(self, self.chosen))

    def _style(self, name: str, base: Style) -> Style:
        if not name:
            return base
        own = self.get_component_rich_style(name, partial=True)
        return base + Style(color=own.color, bold=own.bold, dim=own.dim)


def fitted(text: str, width: int) -> str:
    """Return `text` padded or cut to `width` cells. Long text is cut at the left, because paths differ more at their
    ends."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return ("~" + text[-(width - 1) :]) if width > 1 and cell_len(text) == len(text) else set_cell_size(text, width)
