"""A view of many coloured lines. Only the visible lines are drawn, so that ten thousand lines are not slower than
ten."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from rich.segment import Segment
from textual.cache import LRUCache
from textual.content import Content
from textual.events import Resize
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from kernel_assistant_tui.widgets.wrapping import wrapped

_MATCH, _HERE = "$text on $warning-muted", "$background on $warning"


class StyledText(NamedTuple):
    """A line of text in one style, which is always wrapped. It is converted to a `Content`, which is slower, only when
    it is drawn."""

    plain: str
    style: str


class _Row(NamedTuple):
    """A row of the screen: part of a line."""

    line: int
    start: int
    end: int


class LineView(ScrollView, can_focus=True):
    """A view that wraps long lines, or scrolls code sideways. With `follow` it stays at its end until the user
    scrolls away, and again when the user scrolls back to the end. Text can be selected with the mouse; `text` is
    the whole text."""

    ALLOW_SELECT = True
    DEFAULT_CSS = """
    LineView { overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1; color: $text; }
    LineView.-sideways { overflow-x: auto; scrollbar-size-horizontal: 1; }
    """

    class FollowChanged(Message):
        """Sent when the user has scrolled away from the end, or back to it."""

    def __init__(self, *, wrap: bool = True, follow: bool = False, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes="" if wrap else "-sideways")
        self._wrap, self.follow, self._moving = wrap, follow, False
        self._lines: list[Content | StyledText] = []
        self._rows: list[_Row] = []
        self._widest = self._wrapped_for = 0
        self._strips: LRUCache[int, Strip] = LRUCache(1024)
        self._query = ""
        self._matches: list[int] = []
        self._at = -1

    @property
    def text(self) -> str:
        return "\n".join(line.plain for line in self._lines)

    @property
    def line_count(self) -> int:
        return len(self._lines)

    def append(self, lines: Iterable[Content | StyledText]) -> None:
        """Append lines. They must have no line ends or control characters."""
        first = len(self._lines)
        self._lines.extend(lines)
        if len(self._lines) == first:
            return
        self._lay_out(first)
        self._search_from(first)
        if self.follow:
            self._move(None)
        self.refresh()

    def replace(self, lines: Iterable[Content | StyledText]) -> None:
        """Replace all lines. The scroll position is kept if there are enough lines."""
        self._lines, self._rows, self._matches, self._widest = [], [], [], 0
        self._strips.clear()
        self.append(lines)
        if not self._lines:
            self._lay_out(0)
            self.refresh()

    def find(self, query: str) -> None:
        """Mark every line that contains `query`, ignoring case, and go to the next such line. "" ends the search."""
        self._query, self._matches, self._at = query.lower(), [], -1
        self._strips.clear()
        self._search_from(0)
        self.refresh()
        if self._matches:
            top = self._rows[min(self.scroll_offset.y, len(self._rows) - 1)].line
            self._go_to(next((index for index, line in enumerate(self._matches) if line >= top), 0))

    def find_next(self, step: int = 1) -> None:
        if self._matches:
            self._go_to((self._at + step) % len(self._matches))

    @property
    def matches(self) -> tuple[int, int]:
        """The number of the current match (from 1), and the number of all matches. A match is a line."""
        return self._at + 1, len(self._matches)

    def follow_end(self) -> None:
        """Go to the end and stay there."""
        self.follow = True
        self._move(None)
        self.post_message(self.FollowChanged())

    def show_line(self, line: int) -> None:
        """Scroll to line number `line`, from 0, with a few lines before it."""
        row = next((row for row, one in enumerate(self._rows) if one.line >= line), 0)
        self._move(max(0, row - self.size.height // 3))

    def _go_to(self, index: int) -> None:
        self._at = index
        self.follow = False
        self._strips.clear()
        self.show_line(self._matches[index])
        self.refresh()

    def _search_from(self, first: int) -> None:
        if self._query:
            lines = enumerate(self._lines[first:], first)
            self._matches += [index for index, line in lines if self._query in line.plain.lower()]

    def _lay_out(self, first: int) -> None:
        """Compute the screen rows of the lines from number `first` on."""
        self._wrapped_for = self._width
        for index, line in enumerate(self._lines[first:], first):
            if self._wrap or isinstance(line, StyledText):
                self._rows += [_Row(index, start, end) for start, end in wrapped(line.plain, self._wrapped_for)]
            else:
                self._rows.append(_Row(index, 0, len(line)))
                self._widest = max(self._widest, line.cell_length)
        self.virtual_size = Size(self._widest or self._wrapped_for, len(self._rows))

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    def on_resize(self, event: Resize) -> None:
        self._strips.clear()
        if self._width != self._wrapped_for:
            top = self._rows[self.scroll_offset.y].line if self.scroll_offset.y < len(self._rows) else 0
            self._rows = []
            self._lay_out(0)
            if not self.follow:
                row = next((row for row, one in enumerate(self._rows) if one.line >= top), 0)
                self._move(row)
        if self.follow:
            self._move(None)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        at_end = new_value >= self.max_scroll_y
        if not self._moving and at_end != self.follow:
            self.follow = at_end
            self.post_message(self.FollowChanged())

    def scroll_to(self, *args: Any, **options: Any) -> None:
        """Scroll without animation, because animations are slow over a slow connection."""
        super().scroll_to(*args, **(options | {"animate": False, "immediate": True}))

    def _move(self, y: int | None) -> None:
        """Scroll to row `y`, or to the end if it is None, without counting this as scrolling by the user."""
        self._moving = True
        try:
            self.scroll_to(y=self.max_scroll_y if y is None else y)
        finally:
            self._moving = False

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def selection_updated(self, selection: Selection | None) -> None:
        self._strips.clear()
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text without the line breaks of wrapping, and the line end."""
        text = ""
        for index, row in enumerate(self._rows):
            span = selection.get_span(index)
            if span is None:
                continue
            part = self._lines[row.line].plain[row.start : row.end]
            part = part[span[0] :] if span[1] == -1 else part[span[0] : span[1]]
            text += "\n" + part if text and row.start == 0 else part
        return text, "\n"

    def render_line(self, y: int) -> Strip:
        across, down = self.scroll_offset
        width, index = self.size.width, y + down
        style = self.visual_style.rich_style
        if index >= len(self._rows):
            return Strip.blank(width, style)
        strip = self._strips.get(index)
        if strip is None:
            strip = self._strips[index] = self._strip(index)
        return strip.crop_extend(across, across + width, style).apply_offsets(across, index)

    def _strip(self, index: int) -> Strip:
        row = self._rows[index]
        content = self._lines[row.line]
        line = Content.styled(*content) if isinstance(content, StyledText) else content
        if self._query:
            line = self._marked(line, row.line)
        if (row.start, row.end) != (0, len(line)):
            line = line[row.start : row.end]
        selection = self.text_selection
        span = None if selection is None else selection.get_span(index)
        if span is not None:
            end = len(line) if span[1] == -1 else span[1]
            line = line.stylize(self.screen.get_visual_style("screen--selection"), span[0], end)
        parse = self.app.stylesheet.parse_style
        return Strip(
            [Segment(text, style.rich_style) for text, style in line.render(self.visual_style, "", parse_style=parse)]
        )

    def _marked(self, line: Content, index: int) -> Content:
        here = self._at >= 0 and self._matches[self._at] == index
        text, start = line.plain.lower(), 0
        while (start := text.find(self._query, start)) >= 0:
            line = line.stylize(_HERE if here else _MATCH, start, start + len(self._query))
            start += len(self._query)
        return line
