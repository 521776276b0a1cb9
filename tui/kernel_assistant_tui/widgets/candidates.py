"""The table of candidates. It can be sorted by any column, and two candidates can be marked for comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from textual.binding import BindingType
from textual.message import Message
from textual.widgets import DataTable

from kernel_assistant.records import Timing
from kernel_assistant.session.reporting.words import milliseconds, times
from kernel_assistant_tui.pane_keys import bindings_of
from kernel_assistant_tui.view.search_view import JudgedCandidate, SearchView
from kernel_assistant_tui.widgets.glyphs import clean

_LAST = float("inf")


class _Column(NamedTuple):
    name: str
    text: Callable[[JudgedCandidate], str]
    order: Callable[[JudgedCandidate], Any]


def _timing(seen: JudgedCandidate) -> Timing | None:
    return seen.evaluation.timing if seen.evaluation.correct else None


def _time(seen: JudgedCandidate) -> str:
    timing = _timing(seen)
    return milliseconds(timing.candidate_ms) if timing is not None else ""


def _fastest(seen: JudgedCandidate) -> float:
    timing = _timing(seen)
    return timing.candidate_ms if timing is not None else _LAST


def _gain(seen: JudgedCandidate) -> str:
    timing = _timing(seen)
    return times(timing.speedup_vs_compile) if timing is not None and timing.speedup_vs_compile else ""


def _least_gain(seen: JudgedCandidate) -> float:
    timing = _timing(seen)
    return -(timing.speedup_vs_compile or 0.0) if timing is not None else _LAST


def _error(seen: JudgedCandidate) -> str:
    accuracy = seen.evaluation.accuracy
    return "" if accuracy is None else f"{accuracy.relative_error:.2g} ({accuracy.error_ratio:.2g}×)"


def _ratio(seen: JudgedCandidate) -> float:
    accuracy = seen.evaluation.accuracy
    return _LAST if accuracy is None else accuracy.error_ratio


def _outcome(seen: JudgedCandidate) -> str:
    return seen.evaluation.outcome.value.replace("_", " ")


def _words(seen: JudgedCandidate) -> str:
    return seen.schedule if seen.evaluation.correct and seen.schedule else seen.evaluation.message.partition("\n")[0]


_COLUMNS = (
    _Column("time", _time, _fastest),
    _Column("compile", _gain, _least_gain),
    _Column("outcome", _outcome, _outcome),
    _Column("error", _error, _ratio),
    _Column("turn", lambda seen: str(seen.turn), lambda seen: seen.turn),
    _Column("tier", lambda seen: seen.evaluation.tier.value, lambda seen: seen.evaluation.tier.value),
    _Column("candidate", lambda seen: seen.candidate[:8], lambda seen: seen.candidate),
    _Column("schedule or message", _words, _words),
)


class Candidates(DataTable[str]):
    """The table of candidates. It is sorted by time, fastest first, until another column is chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("candidates")]

    class Chosen(Message):
        def __init__(self, candidate: str) -> None:
            super().__init__()
            self.candidate = candidate

    class Paired(Message):
        def __init__(self, first: str, second: str) -> None:
            super().__init__()
            self.first, self.second = first, second

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self._seen: dict[str, JudgedCandidate] = {}
        self._order = 0
        self._backwards = False
        self._best = ""
        self.marked: list[str] = []

    def on_mount(self) -> None:
        self.add_column(" ", key="mark")
        for column in _COLUMNS:
            self.add_column(column.name, key=column.name)

    def show(self, view: SearchView, *, fresh: bool) -> None:
        """Show the candidates of a job. `fresh` says that the table showed another job before."""
        if fresh:
            self.clear()
            self._seen, self.marked = {}, []
        changed = [one for one in view.candidates if self._seen.get(one.candidate) is not one]
        for one in changed:
            cells = [clean(column.text(one)) for column in _COLUMNS]
            if one.candidate in self._seen:
                for column, cell in zip(_COLUMNS, cells, strict=True):
                    self.update_cell(one.candidate, column.name, cell, update_width=True)
            else:
                self.add_row("", *cells, key=one.candidate)
            self._seen[one.candidate] = one
        if changed:
            self._sort()
        best = view.best.candidate if view.best is not None else ""
        if changed or best != self._best:
            self._best = best
            self._mark()

    def _sort(self) -> None:
        order = _COLUMNS[self._order].order
        ranks = {name: rank for rank, name in enumerate(sorted(self._seen, key=lambda name: order(self._seen[name])))}
        keys = {self._seen[name].candidate[:8]: rank for name, rank in ranks.items()}
        self.sort("candidate", key=lambda cell: keys[cell], reverse=self._backwards)

    def action_next_order(self) -> None:
        self._by((self._order + 1) % len(_COLUMNS))

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        event.stop()
        names = [column.name for column in _COLUMNS]
        if event.column_key.value in names:
            self._by(names.index(event.column_key.value))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        if event.row_key.value is not None:
            self.post_message(self.Chosen(event.row_key.value))

    def action_mark(self) -> None:
        """Mark or unmark the candidate under the cursor. Two marked candidates are compared; a third one replaces the
        first."""
        if not self.row_count:
            return
        key = self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value
        if key is None:
            return
        if key in self.marked:
            self.marked.remove(key)
        else:
            self.marked = [*self.marked[-1:], key]
        self._mark()
        if len(self.marked) == 2:
            self.post_message(self.Paired(*self.marked))

    def _mark(self) -> None:
        """Update the marks in the table: `*` for candidates to compare, `>` for the best candidate."""
        for name in self._seen:
            self.update_cell(name, "mark", "*" if name in self.marked else ">" if name == self._best else "")

    def _by(self, column: int) -> None:
        self._backwards = column == self._order and not self._backwards
        self._order = column
        self._sort()
        self.border_subtitle = f"by {_COLUMNS[column].name}"
