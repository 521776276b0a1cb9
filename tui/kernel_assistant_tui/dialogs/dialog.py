"""The base class of all dialogs: a box with a title and buttons, each of which has a key. Escape closes the dialog."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Input, Static, TextArea

from kernel_assistant_tui.widgets.cycle import Cycle

T = TypeVar("T")


@dataclass(frozen=True)
class Choice(Generic[T]):
    """A button. The key `key` presses it unless an input line has the focus; the dialog then returns `value`."""

    key: str
    label: str
    value: T


class Dialog(ModalScreen[T | None], Generic[T]):
    """A dialog that returns a value, or None if the user closes it. Enter takes the first choice."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("left,up", "app.focus_previous", show=False),
        Binding("right,down", "app.focus_next", show=False),
    ]
    #: Whether the dialog fills the screen, for long texts.
    FULL = False

    def __init__(self, title: str, *choices: Choice[T]) -> None:
        super().__init__()
        self._title = title
        self._choices = choices

    def body(self) -> Iterable[Widget]:
        """Return the widgets between the title and the choices."""
        return ()

    def compose(self) -> ComposeResult:
        with Vertical(classes="box -full" if self.FULL else "box"):
            yield Static(self._title, classes="title", markup=False)
            yield from self.body()
            with Horizontal(classes="choices"):
                for index, choice in enumerate(self._choices):
                    yield Button(f"{choice.key} {choice.label}", id=f"choice-{index}", compact=True)
                yield Button("esc back", id="choice-back", compact=True)

    def on_mount(self) -> None:
        for one in self.query(Input):
            one.cursor_blink = False
        for area in self.query(TextArea):
            area.cursor_blink = False
        fields = [one for one in self.query("Input, TextArea, Rows, Cycle") if one.focusable]
        first = fields[0] if fields else self.query(Button).first()
        first.focus()
        self.ready()

    def ready(self) -> None:
        """Called after mounting; subclasses fill in their widgets here. (Not in `on_mount`: Textual calls that of
        every base class.)"""

    def entered(self) -> None:
        """Handle Enter in an input line: take the first choice, unless a subclass does something else."""
        if self._choices:
            self.answer(self._choices[0].value)

    def answer(self, value: T) -> None:
        """Close the dialog with `value`. Subclasses may check or replace the value first."""
        self.dismiss(value)

    def action_leave(self) -> None:
        self.dismiss(None)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        name = str(event.button.id).removeprefix("choice-")
        if name.isdigit():
            self.answer(self._choices[int(name)].value)
        else:
            self.action_leave()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.entered()

    def on_key(self, event: events.Key) -> None:
        if event.is_printable and isinstance(self.focused, (Input, TextArea)):
            return
        if event.key == "enter" and isinstance(self.focused, Cycle):
            event.stop()
            self.entered()
            return
        for choice in self._choices:
            if event.key == choice.key:
                event.stop()
                self.answer(choice.value)
                return
