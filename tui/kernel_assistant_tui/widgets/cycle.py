"""A field to choose one of a few words with left, right or a click. It takes one line; a drop-down list would take
five."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.reactive import reactive
from textual.widgets import Static


class Cycle(Static, can_focus=True):
    """A field that shows `value`, one of `words`. The keys left and right and a click select another word."""

    DEFAULT_CSS = """
    Cycle { height: 1; width: 1fr; background: $panel; padding: 0 1; }
    Cycle:focus { background: $primary; color: $background; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", show=False),
        Binding("right,space", "step(1)", show=False),
    ]

    value: reactive[str] = reactive("")

    def __init__(self, words: Sequence[str], value: str, *, id: str) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id, markup=False)
        self._words = tuple(words)
        self.set_reactive(Cycle.value, value)

    def render(self) -> str:
        position = self._words.index(self.value) + 1
        return f"< {self.value} >  {position} of {len(self._words)}"

    def action_step(self, by: int) -> None:
        self.value = self._words[(self._words.index(self.value) + by) % len(self._words)]

    def on_click(self, event: events.Click) -> None:
        self.action_step(1)
