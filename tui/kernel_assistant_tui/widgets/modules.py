"""The pane with the module classes of the project and the states of these classes."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from kernel_assistant_tui.project.module import Module, matching, said
from kernel_assistant_tui.widgets.glyphs import clean, glyph
from kernel_assistant_tui.widgets.rows import Piece, Rows, fitted

#: Most cells of a class name, and fewest of a file name: shorter ones are not shown.
_MOST_NAME, _LEAST_WHERE = 28, 10


class ModuleRows(Rows[Module]):
    """One line for each class: a mark, its name, its file if there is room, and the last result."""

    BORDER_TITLE = "modules"
    _longest = 0

    def show(self, items: Sequence[Module]) -> None:
        self._longest = max((cell_len(item.name) for item in items), default=0)
        super().show(items)

    def pieces(self, item: Module, width: int) -> list[Piece]:
        mark, style = _mark(item)
        figure = said(item.state) + ("~" if item.state.stale else "")
        right = f" {figure}" if figure else ""
        rank = f"{item.rank.position:>2} " if item.rank is not None else ""
        share = f" {item.rank.share:>4.0%}" if item.rank is not None else ""
        left = width - cell_len(right) - 2 - len(rank)
        text = set_cell_size(item.name, min(max(cell_len(item.name), min(self._longest, _MOST_NAME)), left))
        rest = left - cell_len(text) - len(share)
        where = fitted(f"{item.where}:{item.line}", rest - 1) if rest > _LEAST_WHERE else ""
        between = f" {where}{share}" if where else " " * (left - cell_len(text))
        return [
            (mark + " ", style),
            (rank, "rows--dim"),
            (text, "rows--strong"),
            (between, "rows--dim"),
            (right, "rows--warn" if item.state.stale else _figure_style(item)),
        ]

    def key_of(self, item: Module) -> Hashable:
        return item.key


def _mark(item: Module) -> tuple[str, str]:
    state = item.state
    if state.state in ("queued", "running"):
        return glyph("▸", ">"), "rows--warn"
    if state.applied:
        return glyph("●", "*"), "rows--good"
    return " ", ""


def _classes(count: int) -> str:
    return "1 class" if count == 1 else f"{count} classes"


def _figure_style(item: Module) -> str:
    if item.state.state == "failed" or item.state.outcome == "failed":
        return "rows--bad"
    return "rows--good" if item.state.recommended or item.state.applied else "rows--dim"


class Modules(Vertical):
    """The list of classes. During a search there is a search line above it; below it are details of the chosen
    class."""

    DEFAULT_CSS = """
    Modules {
        & > #search { height: 1; border: none; padding: 0 1; }
        & > #module-rows { height: 1fr; }
        & > #module-said { height: 2; padding: 0 1; color: $text-muted; }
        & > #module-empty { height: 1fr; padding: 1 2; color: $text-muted; display: none; }
        &.-empty > #module-empty { display: block; }
        &.-empty > #module-rows { display: none; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "end_search", show=False),
        # With priority, so that the list has the focus before the next key is handled.
        Binding("enter", "take_hits", show=False, priority=True),
    ]

    def __init__(self, root: str, *, id: str) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._root = root
        self._all: tuple[Module, ...] = ()
        self._read = False
        self._count = ""

    def compose(self) -> ComposeResult:
        search = Input(placeholder="class or file", id="search", compact=True)
        search.cursor_blink = False
        search.display = False
        yield search
        yield ModuleRows(id="module-rows")
        yield Static("reading the project", id="module-empty", markup=False)
        yield Static("", id="module-said", markup=False)

    @property
    def rows(self) -> ModuleRows:
        return self.query_one("#module-rows", ModuleRows)

    @property
    def chosen(self) -> Module | None:
        return self.rows.chosen

    @property
    def all(self) -> tuple[Module, ...]:
        return self._all

    def show(self, modules: Sequence[Module]) -> None:
        self._all, self._read = tuple(modules), True
        self._filter()

    def search(self) -> None:
        field = self.query_one("#search", Input)
        field.display = True
        self.screen.set_focus(field)

    def action_end_search(self) -> None:
        field = self.query_one("#search", Input)
        field.value = ""
        field.display = False
        self.screen.set_focus(self.rows)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._filter()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "take_hits" or self.screen.focused is self.query_one("#search")

    async def action_take_hits(self) -> None:
        """Filter the list and focus it, after the search line has handled all keys typed before."""
        typed = asyncio.Event()
        self.query_one("#search", Input).call_later(typed.set)
        await typed.wait()
        self._filter()
        self.screen.set_focus(self.rows)

    def on_rows_moved(self, event: Rows.Moved) -> None:
        self._say(event.item)

    def _filter(self) -> None:
        words = self.query_one("#search", Input).value
        matches = matching(self._all, words)
        self.set_class(not matches, "-empty")
        if not matches and self._read:
            self.query_one("#module-empty", Static).update(self._nothing(words))
        self._count = f"{len(matches)} of {len(self._all)}" if words else _classes(len(matches))
        self.rows.show(matches)
        self._say(self.rows.chosen)

    def _nothing(self, words: str) -> str:
        if words:
            return f"No class has {words!r} in its name or file. Escape ends the search."
        return (
            f"No nn.Module classes below {self._root}.\n\n"
            "Start with a folder or a file that has some: kernel-assistant tui PATH"
        )

    def _say(self, item: Module | None) -> None:
        status = self.query_one("#module-said", Static)
        if item is None:
            status.update("", layout=False)
            return
        state = item.state
        outcome = "" if state.recommended or state.applied else state.outcome.replace("_", " ")
        applied = "applied" if state.applied else ""
        parts = [
            self._count,
            f"{item.where}:{item.line}",
            outcome,
            "" if outcome else state.figure,
            applied,
            state.stale,
        ]
        if state.offer not in ("", state.job) and not state.applied:
            parts.append(f"apply takes job {state.offer}: {state.offered}")
        if item.rank is not None:
            parts.append(f"{item.rank.share:.0%} of the scanned program's time")
        if state.state == "failed":
            parts.append(state.message)
        if state.kernel_calls is not None:
            parts.append(f"{state.kernel_calls} calls served, {sum(state.fallbacks.values())} fell back")
        status.update(clean(", ".join(part for part in parts if part)), layout=False)
