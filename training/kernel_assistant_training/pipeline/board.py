"""The progress display of a pipeline: a table that is redrawn in place, or plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from kernel_assistant.session.training_stages import FIRST, clock
from kernel_assistant_training.tracking.metrics import as_text

LINE_EVERY_S = 30.0
_MARKS = {"done": "✓", "limit": "✓", "running": "▶", "paused": "‖", "waiting": "·", "stopped": "■", "failed": "✗"}
_STYLES = {"running": "bold", "waiting": "dim", "failed": "red"}
#: Figures shown of a stage.
MOST_SHOWN = 3


@dataclass
class BoardRow:
    """The row of one stage. `state` is a key of `_MARKS`, such as "running"; `seconds` is the time used so far and
    `limit` the most that the stage may use, in seconds; `newest` has the newest value of each metric."""

    name: str
    limit: float
    state: str = "waiting"
    seconds: float = 0.0
    newest: dict[str, float] = field(default_factory=dict)

    @property
    def figures(self) -> str:
        known = [name for name in FIRST if name in self.newest]
        names = [*known, *(name for name in self.newest if name not in FIRST)][:MOST_SHOWN]
        return "  ".join(f"{name.replace('_', ' ')} {as_text(name, self.newest[name])}" for name in names)


class Board:
    """Shows a table with a row for each stage on a terminal. Elsewhere it prints a line when a stage's state changes,
    and a line for a running stage every `LINE_EVERY_S` seconds."""

    def __enter__(self) -> Self:
        from rich.live import Live

        # It is drawn in `show`, not by a thread: a thread would disturb starting processes.
        self._live = Live(auto_refresh=False, vertical_overflow="visible")
        self._redraws = sys.stdout.isatty()
        if self._redraws:
            self._live.start()
        self._states: dict[str, str] = {}
        self._printed = time.monotonic()
        return self

    def __exit__(self, *ended: object) -> None:
        self._live.stop()

    def show(self, rows: Sequence[BoardRow]) -> None:
        if self._redraws:
            self._redraw(rows)
            return
        now = time.monotonic()
        for row in rows:
            late = row.state in ("running", "paused") and now - self._printed >= LINE_EVERY_S
            if row.state != self._states.get(row.name, "waiting") or late:
                times = f"{clock(row.seconds)} of {clock(row.limit)}"
                self.say(f"{row.name}: {row.state}, {times}  {row.figures}".rstrip())
                self._printed = now
            self._states[row.name] = row.state

    def say(self, line: str) -> None:
        self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _redraw(self, rows: Sequence[BoardRow]) -> None:
        from rich import box
        from rich.table import Column, Table

        times = [Column(name, justify="right", no_wrap=True) for name in ("time", "limit")]
        figures = Column("newest figures", overflow="ellipsis", no_wrap=True)
        table = Table("", Column("stage", no_wrap=True), *times, figures, box=box.SIMPLE_HEAD, pad_edge=False)
        for row in rows:
            text = f"{row.figures}  (at its limit)" if row.state == "limit" else row.figures
            cells = (_MARKS[row.state], row.name, clock(row.seconds) if row.seconds else "", clock(row.limit), text)
            table.add_row(*cells, style=_STYLES.get(row.state, ""))
        self._live.update(table, refresh=True)
