"""What is shown while a job runs, on stderr: a calm live view for a terminal, lines for everything else."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kernel_assistant.cli.text import say_warning
from kernel_assistant.events import (
    AnyEvent,
    BaselineMeasured,
    BestImproved,
    CandidateEvaluated,
    FreeWinMeasured,
    JobQueued,
    JobStarted,
    ModelSaid,
    TaskOpened,
    Warned,
)
from kernel_assistant.events import Progress as Phase
from kernel_assistant.session.words import of_baseline, of_best, of_free_win

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_REPORT_EVERY_S = 10.0


class Progress:
    """Silent: keeps count and passes warnings on."""

    def __init__(self) -> None:
        self.best = ""
        self.phase = ""
        self.reference = ""
        self._correct: dict[str, bool] = {}
        self.began = 0.0
        self.now = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def show(self, event: AnyEvent) -> None:
        """Take note of `event` and show it."""
        self.note(event)
        if isinstance(event, Warned):
            self.warn(event.message)
        self.changed(event)

    def note(self, event: AnyEvent) -> None:
        # The job's own clock: what happened before we watched is not shown as happening now.
        self.began, self.now = self.began or event.time, event.time
        match event:
            case JobQueued():
                self.phase = f"waiting for {event.position} jobs before it" if event.position else "starting"
            case JobStarted():
                self.phase = f"{'going on' if event.resumed else 'started'} on {event.device}"
            case Phase():
                self.phase = event.message or event.phase
            case TaskOpened():
                self.phase = f"module exported: {event.nodes} operators"
            case BaselineMeasured():
                self.reference = of_baseline(event)
            case CandidateEvaluated():
                # A finalist comes again in the full tier, and may fail there.
                self._correct[event.evaluation.candidate] = event.evaluation.correct
            case BestImproved():
                self.best = of_best(event)
            case FreeWinMeasured():
                self.phase = f"free: {of_free_win(event.win)}"

    def counts(self) -> str:
        return f"{len(self._correct)} tried, {sum(self._correct.values())} correct"

    def warn(self, message: str) -> None:
        say_warning(message)

    def changed(self, event: AnyEvent) -> None:
        """Something to show may have changed."""

    def close(self) -> None:
        """Nothing more is shown."""


class Lines(Progress):
    """One line for each thing worth one."""

    def __init__(self) -> None:
        super().__init__()
        self._reported = 0.0
        self._last_reference = self._last_phase = ""

    def changed(self, event: AnyEvent) -> None:
        match event:
            case JobQueued() | JobStarted() | Phase() | TaskOpened() | FreeWinMeasured() if (
                self.phase != self._last_phase
            ):
                # Several conversations do the same thing one after another.
                self._last_phase = self.phase
                self._say(self.phase)
            case BaselineMeasured() if self.reference != self._last_reference:
                self._last_reference = self.reference
                self._say(self.reference)
            case BestImproved():
                self._say(f"{self.counts()}; best {self.best}")
            case CandidateEvaluated() if self.now - self._reported > _REPORT_EVERY_S:
                self._say(self.counts())

    def _say(self, text: str) -> None:
        self._reported = self.now
        print(f"[{self.now - self.began:5.1f} s] {text}", file=sys.stderr, flush=True)


class Words(Lines):
    """What a model says and calls as well."""

    def changed(self, event: AnyEvent) -> None:
        super().changed(event)
        if isinstance(event, ModelSaid):
            who = "model" if event.role == "assistant" else event.role
            said = [*event.text.splitlines(), *(f"{call.name} {call.arguments}" for call in event.calls)]
            for line in said:
                self._say(f"{who} {event.conversation}: {line}")


class LiveView(Progress):
    """A few rows that change in place and vanish at the end."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title
        self._live: Live | None = None

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.live import Live

        # Redrawn by its own clock, four times a second: events may come much faster.
        self._live = Live(get_renderable=self._rows, console=Console(stderr=True), refresh_per_second=4, transient=True)
        self._live.start()
        return self

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def warn(self, message: str) -> None:
        if self._live is None:
            say_warning(message)
        else:
            self._live.console.print(f"warning: {message}", markup=False, highlight=False)

    def _rows(self) -> Table:
        from rich.table import Table

        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="dim", no_wrap=True)
        rows.add_column(overflow="ellipsis", no_wrap=True)
        rows.add_row(f"{time.time() - self.began if self.began else 0:.0f} s", f"[bold]{_plain(self._title)}[/bold]")
        rows.add_row("now", _plain(self.phase))
        if self.reference:
            rows.add_row("reference", _plain(self.reference))
        if self._correct:
            rows.add_row("candidates", self.counts())
        if self.best:
            rows.add_row("best", f"[green]{_plain(self.best)}[/green]")
        return rows


def choose_progress(title: str, *, silent: bool, words: bool = False) -> Progress:
    """`words`: what a model says too, in lines."""
    if silent:
        return Progress()
    if words:
        return Words()
    return LiveView(title) if sys.stderr.isatty() else Lines()


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
