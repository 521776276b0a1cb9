"""The dialog that asks which training run to show."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from textual.widget import Widget
from textual.widgets import Input, Static

from kernel_assistant.session.reporting.words import ago
from kernel_assistant.session.training_run import METRICS
from kernel_assistant_tui.dialogs.dialog import Choice, Dialog
from kernel_assistant_tui.runs.find import TrainingRun
from kernel_assistant_tui.runs.pipeline import is_pipeline
from kernel_assistant_tui.widgets.rows import Piece, Rows, fitted


class RunRows(Rows[TrainingRun]):
    """One line for each run: its folder relative to the project, finished stages, state, and time of the last write."""

    def __init__(self, base: Path, *, id: str) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._base = base

    def pieces(self, item: TrainingRun, width: int) -> list[Piece]:
        path = str(item.path.relative_to(self._base)) if item.path.is_relative_to(self._base) else str(item.path)
        right = f" {item.stages:<16} {item.state:<8} {ago(item.written):>10}"
        room = width - cell_len(right)
        style = {"running": "rows--good", "paused": "rows--warn", "failed": "rows--bad", "died": "rows--bad"}
        if room < 12:
            return [(fitted(path, width), "rows--strong")]
        return [(set_cell_size(fitted(path, room), room), "rows--strong"), (right, style.get(item.state, "rows--dim"))]

    def key_of(self, item: TrainingRun) -> Hashable:
        return item.path


class RunDialog(Dialog[Path]):
    """Asks for a training run and returns its folder. The input line filters the list, or takes a folder that is not in
    the list."""

    FULL = True

    def __init__(self, runs: Sequence[TrainingRun], base: Path) -> None:
        super().__init__("Which training run?", Choice("o", "open", Path()))
        self._runs, self._base = tuple(runs), base

    def body(self) -> Iterable[Widget]:
        yield Input(placeholder="search, or the folder of a run", id="run", compact=True)
        rows = RunRows(self._base, id="run-rows")
        rows.add_class("text")
        yield rows
        yield Static("", classes="hint", id="run-count", markup=False)
        yield Static("", classes="warn", id="run-wrong", markup=False)

    def ready(self) -> None:
        self._filter("")
        if self._runs:
            self._rows.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._filter(event.value)

    def on_rows_item_chosen(self, event: Rows.ItemChosen) -> None:
        event.stop()
        self.answer(Path())

    def answer(self, value: Path) -> None:
        typed = self.query_one("#run", Input).value.strip()
        chosen = self._rows.chosen
        if chosen is not None:
            self.dismiss(chosen.path)
        elif typed:
            run = (self._base / Path(typed).expanduser()).absolute()
            if (run / METRICS).is_file() or is_pipeline(run):
                self.dismiss(run)
            else:
                self.query_one("#run-wrong", Static).update(f"{run} is no run: it has no {METRICS}")

    @property
    def _rows(self) -> RunRows:
        return self.query_one("#run-rows", RunRows)

    def _filter(self, words: str) -> None:
        parts = words.lower().split()
        matches = [
            one for one in self._runs if all(part in f"{one.path} {one.state} {one.stages}".lower() for part in parts)
        ]
        self._rows.show(matches)
        self.query_one("#run-wrong", Static).update("")
        nothing = (
            "No training run below the project. kernel-assistant train --recipe smoke --out RUN makes one. "
            "A run that lies elsewhere: type its folder, enter opens it."
        )
        count = f"{len(matches)} of {len(self._runs)}, the one written to last first"
        self.query_one("#run-count", Static).update(count if self._runs else nothing)
