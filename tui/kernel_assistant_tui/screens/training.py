"""Which training run to look at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from textual.widget import Widget
from textual.widgets import Input, Static

from kernel_assistant.session.training_run import METRICS
from kernel_assistant_tui.screens.dialog import Choice, Dialog


class RunDialog(Dialog[Path]):
    """Answers with a folder that holds `metrics.jsonl`."""

    def __init__(self, runs: Sequence[Path]) -> None:
        super().__init__("Which training run?", Choice("o", "open", Path()))
        self._runs = runs

    def body(self) -> Iterable[Widget]:
        yield Input(str(self._runs[0]) if self._runs else "", placeholder="its folder", id="run", compact=True)
        found = "\n".join(str(run) for run in self._runs[:8])
        words = f"Runs that were found, newest first:\n{found}" if found else f"No {METRICS} below the project."
        yield Static(words, classes="hint", markup=False)
        yield Static("", classes="warn", id="run-wrong", markup=False)

    def answer(self, value: Path) -> None:
        run = Path(self.query_one("#run", Input).value.strip()).expanduser()
        if (run / METRICS).is_file():
            self.dismiss(run.absolute())
        else:
            self.query_one("#run-wrong", Static).update(f"there is no {METRICS} in {run}")
