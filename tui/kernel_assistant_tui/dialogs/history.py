"""The dialog with the history of jobs, newest first, with search."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from textual.widget import Widget
from textual.widgets import Input, Static

from kernel_assistant.session.edits import place_of
from kernel_assistant.session.reporting.verdicts import outcome_with_figure
from kernel_assistant.store import JobRow, JobState
from kernel_assistant_tui.dialogs.dialog import Choice, Dialog
from kernel_assistant_tui.widgets.glyphs import clean
from kernel_assistant_tui.widgets.rows import Piece, Rows, fitted

#: Most cells of a class name, and fewest of a file name: shorter ones are not shown.
_MOST_NAME, _LEAST_WHERE = 24, 10


@dataclass(frozen=True)
class HistoryEntry:
    """The parts of a job that the list shows. It is smaller than a row of the store, which has the whole source text
    too."""

    job: str
    state: str
    name: str
    where: str
    when: str
    result: str

    @property
    def text(self) -> str:
        return f"{self.job} {self.state} {self.where}:{self.name} {self.when} {self.result}".lower()


def past(row: JobRow, when: str, base: Path, *, alive: bool) -> HistoryEntry:
    """Returns the entry of a job for the list. `when` describes its time. `alive` says whether a session host runs;
    without one, a queued or running job counts as interrupted. Paths are relative to `base`."""
    selection = place_of(row.task, row.options)
    where = selection.path.relative_to(base) if selection.path.is_relative_to(base) else selection.path
    kind = "" if row.options.kind.value == "optimize" else f"{row.options.kind.value} "
    state = JobState.interrupted if row.state.active and not alive else row.state
    return HistoryEntry(row.id, state.value, f"{kind}{selection.class_name}", str(where), when, _result(row))


def _result(row: JobRow) -> str:
    if row.error or row.result is None:
        return row.error
    return outcome_with_figure(row.result).replace("torch.compile", "compile")


class HistoryRows(Rows[HistoryEntry]):
    """One line for each job: number, state, time, class, file if there is room, and result."""

    _longest = 0

    def show(self, items: Sequence[HistoryEntry]) -> None:
        self._longest = min(_MOST_NAME, max((cell_len(item.name) for item in items), default=0))
        super().show(items)

    def pieces(self, item: HistoryEntry, width: int) -> list[Piece]:
        good = item.result.startswith("improved")
        style = "rows--good" if good else "rows--bad" if item.state == "failed" else "rows--dim"
        head = f"{item.job:>5} {item.state:<12}{item.when:<11}"
        name = set_cell_size(item.name, self._longest)
        left = width - cell_len(head) - self._longest - 2
        result = clean(item.result)
        room = left - cell_len(result) - 2
        where = fitted(item.where, room) + "  " if room >= _LEAST_WHERE else ""
        return [(head, "rows--dim"), (f"{name}  ", "rows--strong"), (where, "rows--dim"), (result, style)]

    def key_of(self, item: HistoryEntry) -> Hashable:
        return item.job


class HistoryDialog(Dialog[str]):
    """Shows the history and returns the number of the job to open."""

    FULL = True

    def __init__(self, jobs: Sequence[HistoryEntry]) -> None:
        super().__init__("History", Choice("o", "open", ""))
        self._jobs = tuple(jobs)

    def body(self) -> Iterable[Widget]:
        yield Input(placeholder="search: class, file, state, result", id="history-search", compact=True)
        rows = HistoryRows(id="history-rows")
        rows.add_class("text")
        yield rows
        yield Static("", classes="hint", id="history-count", markup=False)

    def ready(self) -> None:
        self._filter("")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._filter(event.value)

    def entered(self) -> None:
        """Handle Enter in the search line: focus the list, or take the only match."""
        rows = self._rows
        if len(rows.items) == 1:
            self.answer("")
        else:
            rows.focus()

    def on_rows_item_chosen(self, event: Rows.ItemChosen) -> None:
        self.answer("")

    def answer(self, value: str) -> None:
        chosen = self._rows.chosen
        if chosen is not None:
            self.dismiss(chosen.job)

    @property
    def _rows(self) -> HistoryRows:
        return self.query_one("#history-rows", HistoryRows)

    def _filter(self, words: str) -> None:
        parts = words.lower().split()
        matches = [one for one in self._jobs if all(part in one.text for part in parts)]
        self._rows.show(matches)
        nothing = "nothing yet: choose a class and start" if not self._jobs else f"{len(matches)} of {len(self._jobs)}"
        self.query_one("#history-count", Static).update(nothing)
