"""Asks for one line, such as a command or a path."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget
from textual.widgets import Input, Static

from kernel_assistant_tui.dialogs.dialog import Choice, Dialog


class LineDialog(Dialog[str]):
    """Returns the line as the user left it, without spaces around it. `yes` is the key and the label of its button."""

    def __init__(self, title: str, suggested: str, hint: str, *, yes: tuple[str, str], placeholder: str = "") -> None:
        super().__init__(title, Choice(*yes, ""))
        self._suggested, self._hint, self._placeholder = suggested, hint, placeholder

    def body(self) -> Iterable[Widget]:
        yield Input(self._suggested, placeholder=self._placeholder, id="line", compact=True)
        yield Static(self._hint, classes="hint", markup=False)

    def answer(self, value: str) -> None:
        self.dismiss(self.query_one("#line", Input).value.strip())
