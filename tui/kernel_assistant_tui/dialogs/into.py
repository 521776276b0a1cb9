"""Asks which of the user's programs imports the kernels for a class of an installed library."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget
from textual.widgets import Input, Static

from kernel_assistant_tui.dialogs.dialog import Choice, Dialog


class IntoDialog(Dialog[str]):
    """Answer with the path that the user typed, "" for none."""

    def __init__(self, class_name: str, suggested: str) -> None:
        super().__init__(f"Which program imports the kernels of {class_name}?", Choice("a", "go on", ""))
        self._suggested = suggested

    def body(self) -> Iterable[Widget]:
        yield Input(self._suggested, placeholder="no file: you put the line in yourself", id="into", compact=True)
        words = (
            "The library's file stays as it is. A package with the kernels is written beside the program, and one line "
            "that imports it into the program."
        )
        yield Static(words, classes="hint", markup=False)

    def answer(self, value: str) -> None:
        self.dismiss(self.query_one("#into", Input).value.strip())
