"""Ask for the program to scan."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from textual.widget import Widget
from textual.widgets import Input, Static

from kernel_assistant_tui.dialogs.dialog import Choice, Dialog


class ScanDialog(Dialog[str]):
    """Returns a command line."""

    def __init__(self, suggested: str, folder: Path) -> None:
        super().__init__("Run a program and see what its modules cost", Choice("s", "scan", ""))
        self._suggested = suggested
        self._folder = folder

    def body(self) -> Iterable[Widget]:
        yield Input(self._suggested, id="command", compact=True)
        words = (
            f"It runs in {self._folder}, as it always does; python is the project's interpreter. Its classes are "
            "ranked by what kernels could gain, and the inputs of the first ones are kept for optimizing them."
        )
        yield Static(words, classes="hint", markup=False)

    def answer(self, value: str) -> None:
        self.dismiss(self.query_one("#command", Input).value.strip())
