"""What a person sees while a pipeline runs: a table that stays in place, or lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

LINE_EVERY_S = 30.0
_MARKS = {"done": "✓", "limit": "✓", "running": "▶", "paused": "‖", "waiting": "·", "stopped": "■", "failed": "✗"}


@dataclass(frozen=True)
class Row:
    """`state` is one of the marks; seconds so far and at most."""

    name: str
    state: str
    seconds: float
    limit: float
    figures: str = ""


class Board:
    """Lines: when a stage's state changes, and twice a minute."""

    def __enter__(self) -> Self:
        self._states: dict[str, str] = {}
        self._said = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, rows: Sequence[Row]) -> None:
        now = time.monotonic()
        for row in rows:
            before = self._states.get(row.name, "waiting")
            late = row.state in ("running", "paused") and now - self._said >= LINE_EVERY_S
            if row.state != before or late:
                self.say(f"{row.name}: {row.state}, {clock(row.seconds)} of {clock(row.limit)}  {row.figures}".rstrip())
                self._said = now
            self._states[row.name] = row.state

    def say(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class LiveBoard(Board):
    """A row for each stage, drawn when it is told to: a thread that draws would be in the way of starting processes."""

    def __enter__(self) -> Self:
        from rich.live import Live
        from rich.table import Table

        self._live: Live = Live(Table(), auto_refresh=False, vertical_overflow="visible")
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, rows: Sequence[Row]) -> None:
        self._live.update(_table(rows), refresh=True)

    def say(self, line: str) -> None:
        self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)


def board() -> Board:
    """What suits where output goes."""
    return LiveBoard() if sys.stdout.isatty() else Board()


def clock(seconds: float) -> str:
    """45 s, 12:07 or 1:02:07."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def _table(rows: Sequence[Row]) -> Table:
    from rich import box
    from rich.table import Table

    found = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, where in (("", "left"), ("stage", "left"), ("time", "right"), ("limit", "right")):
        found.add_column(name, justify=where, no_wrap=True)  # type: ignore[arg-type]
    found.add_column("newest figures", overflow="ellipsis", no_wrap=True)
    styles = {"running": "bold", "waiting": "dim", "failed": "red"}
    for row in rows:
        spent = clock(row.seconds) if row.seconds else ""
        figures = f"{row.figures}  (at its limit)" if row.state == "limit" else row.figures
        cells = (_MARKS[row.state], row.name, spent, clock(row.limit), figures)
        found.add_row(*cells, style=styles.get(row.state, ""))
    return found
