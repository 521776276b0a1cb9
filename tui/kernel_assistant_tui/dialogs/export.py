"""Ask for the format and the folder of an export."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Static

from kernel_assistant.apply import KINDS
from kernel_assistant_tui.dialogs.dialog import Choice, Dialog
from kernel_assistant_tui.widgets.cycle import Cycle


@dataclass(frozen=True)
class ExportChoice:
    form: str
    folder: str


class ExportDialog(Dialog[ExportChoice]):
    def __init__(self, job: str, folder: Path) -> None:
        super().__init__(f"Export the kernels of job {job}", Choice("w", "write", ExportChoice("", "")))
        self._folder = folder

    def body(self) -> Iterable[Widget]:
        yield Horizontal(Static("form"), Cycle(KINDS, KINDS[0], id="form"), classes="field")
        yield Horizontal(Static("new folder"), Input(str(self._folder), id="folder", compact=True), classes="field")
        words = (
            "kernelbench: one file with ModelNew, kernels inline. cuda-agent: a workdir of kernels and bindings. "
            "package: what pip installs. None of them needs this tool."
        )
        yield Static(words, classes="hint", markup=False)

    def answer(self, value: ExportChoice) -> None:
        folder = self.query_one("#folder", Input).value.strip()
        if folder:
            self.dismiss(ExportChoice(self.query_one("#form", Cycle).value, folder))
