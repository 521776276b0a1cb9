"""Everything that was done, newest first, with search."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from textual.widget import Widget
from textual.widgets import Input, Static

from kernel_assistant.records import JobOutcome
from kernel_assistant.session.edits import place_of
from kernel_assistant.session.words import times
from kernel_assistant.store import JobRow, JobState
from kernel_assistant_tui.screens.dialog import Choice, Dialog
from kernel_assistant_tui.widgets.glyphs import clean
from kernel_assistant_tui.widgets.rows import Piece, Rows, fitted

#: Cells that the names of classes take at most, and those of a file's name at least: what is less says nothing.
_MOST_NAME, _LEAST_WHERE = 24, 10


@dataclass(frozen=True)
class Past:
    """What the list needs of a job: a row of the store carries the whole text that it ran."""

    job: str
    state: str
    name: str
    where: str
    when: str
    result: str

    @property
    def text(self) -> str:
        return f"{self.job} {self.state} {self.where}:{self.name} {self.when} {self.result}".lower()


def past(row: JobRow, when: str, base: Path, *, alive: bool) -> Past:
    """`alive`: there is a session host. What runs without one was interrupted, whatever the store says. Files are named
    as seen from `base`."""
    place = place_of(row.task, row.options)
    where = place.path.relative_to(base) if place.path.is_relative_to(base) else place.path
    kind = "" if row.options.kind.value == "optimize" else f"{row.options.kind.value} "
    state = JobState.interrupted if row.state.active and not alive else row.state
    return Past(row.id, state.value, f"{kind}{place.class_name}", str(where), when, _result(row))


def _result(row: JobRow) -> str:
    if row.error or row.result is None:
        return row.error
    words, best = row.result.outcome.value.replace("_", " "), row.result.best
    if best is None or row.result.outcome is not JobOutcome.improved:
        return words  # a figure beside "no gain" would contradict it
    if best.speedup_vs_compile is None:
        return f"{words}, {times(best.speedup_vs_eager)} eager"
    return f"{words}, {times(best.speedup_vs_compile)} compile"


class PastRows(Rows[Past]):
    """One line: number, state, when, the class, its file where there is room, and the result."""

    _longest = 0

    def show(self, items: Sequence[Past]) -> None:
        self._longest = min(_MOST_NAME, max((cell_len(item.name) for item in items), default=0))
        super().show(items)

    def pieces(self, item: Past, width: int) -> list[Piece]:
        good = item.result.startswith("improved")
        style = "rows--good" if good else "rows--bad" if item.state == "failed" else "rows--dim"
        head = f"{item.job:>5} {item.state:<12}{item.when:<11}"
        name = set_cell_size(item.name, self._longest)
        left = width - cell_len(head) - self._longest - 2
        result = clean(item.result)
        room = left - cell_len(result) - 2
        where = fitted(item.where, room) + "  " if room >= _LEAST_WHERE else ""
        return [(head, "rows--dim"), (f"{name}  ", "rows--strong"), (where, "rows--dim"), (result, style)]

    def key_of(self, item: Past) -> Hashable:
        return item.job


class HistoryDialog(Dialog[str]):
    """Answers with the number of the job to open."""

    FULL = True

    def __init__(self, jobs: Sequence[Past]) -> None:
        super().__init__("History", Choice("o", "open", ""))
        self._jobs = tuple(jobs)

    def body(self) -> Iterable[Widget]:
        yield Input(placeholder="search: class, file, state, result", id="history-search", compact=True)
        rows = PastRows(id="history-rows")
        rows.add_class("text")
        yield rows
        yield Static("", classes="hint", id="history-count", markup=False)

    def ready(self) -> None:
        self._filter("")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._filter(event.value)

    def entered(self) -> None:
        """The list takes the keys; with one hit left there is nothing to choose."""
        rows = self._rows
        if len(rows.items) == 1:
            self.answer("")
        else:
            rows.focus()

    def on_rows_chosen(self, event: Rows.Chosen) -> None:
        self.answer("")

    def answer(self, value: str) -> None:
        chosen = self._rows.chosen
        if chosen is not None:
            self.dismiss(chosen.job)

    @property
    def _rows(self) -> PastRows:
        return self.query_one("#history-rows", PastRows)

    def _filter(self, words: str) -> None:
        parts = words.lower().split()
        found = [one for one in self._jobs if all(part in one.text for part in parts)]
        self._rows.show(found)
        nothing = "nothing yet: choose a class and start" if not self._jobs else f"{len(found)} of {len(self._jobs)}"
        self.query_one("#history-count", Static).update(nothing)
