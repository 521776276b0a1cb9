"""Shows the progress of a job on stderr: a live view on a terminal, otherwise lines of text."""

from __future__ import annotations

import sys
import time
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
    ModelReplied,
    TaskOpened,
    Warned,
)
from kernel_assistant.events import Progress as Phase
from kernel_assistant.session.reporting.job_view import JobView, fold
from kernel_assistant.session.reporting.words import of_baseline, of_best, of_free_win, of_spending, time_left

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_REPORT_EVERY_S = 10.0


class ProgressDisplay:
    """The base class of all displays. It follows the events of the job and prints only warnings."""

    def __init__(self) -> None:
        self.view = JobView()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def show(self, event: AnyEvent) -> None:
        """Update `view` with `event`, and show it."""
        self.note(event)
        if isinstance(event, Warned):
            self.warn(event.message)
        self.changed(event)

    def note(self, event: AnyEvent) -> None:
        self.view = fold(self.view, event)

    @property
    def best(self) -> str:
        """The best candidate so far as text; "" if there is none."""
        return "" if self.view.best is None else of_best(self.view.best)

    @property
    def reference(self) -> str:
        """The times of the reference as text; "" before they are measured."""
        return "" if self.view.baseline is None else of_baseline(self.view.baseline)

    @property
    def phase(self) -> str:
        """What the job is doing now, as text."""
        match self.view.newest(JobQueued, JobStarted, Phase, TaskOpened, FreeWinMeasured):
            case JobQueued(position=position):
                return f"waiting for {position} jobs before it" if position else "starting"
            case JobStarted(device=device, resumed=resumed):
                return f"{'going on' if resumed else 'started'} on {device}"
            case Phase(phase=phase, message=message):
                return message or phase
            case TaskOpened(nodes=nodes):
                return f"module exported: {nodes} operators"
            case FreeWinMeasured(win=win):
                return f"free: {of_free_win(win)}"
            case _:
                return ""

    def warn(self, message: str) -> None:
        say_warning(message)

    def changed(self, event: AnyEvent) -> None:
        """Called after each event; subclasses update the display here."""

    def close(self) -> None:
        """End the display."""


class LineProgress(ProgressDisplay):
    """Prints one line for each important event."""

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
                spent = of_spending(self.view.spent) if isinstance(event, Phase) and event.phase == "model" else ""
                self._say(f"{self.phase} ({spent})" if spent else self.phase)
            case BaselineMeasured() if self.reference != self._last_reference:
                self._last_reference = self.reference
                self._say(self.reference)
            case BestImproved():
                self._say(f"{self.view.counts}; best {self.best}")
            case CandidateEvaluated() if self.view.now - self._reported > _REPORT_EVERY_S:
                self._say(self.view.counts)

    def _say(self, text: str) -> None:
        # Uses the job's own clock, so that events from before we watched do not seem to happen now.
        began, now = self.view.began, self.view.now
        self._reported = now
        left = ", ".join(filter(None, (f"{now - began:5.1f} s", time_left(self.view.ends, now))))
        print(f"[{left}] {text}", file=sys.stderr, flush=True)


class ConversationProgress(LineProgress):
    """Also prints the text that a model writes and its tool calls."""

    def changed(self, event: AnyEvent) -> None:
        super().changed(event)
        if isinstance(event, ModelReplied):
            who = "model" if event.role == "assistant" else event.role
            lines = [*event.text.splitlines(), *(f"{call.name} {call.arguments}" for call in event.calls)]
            for line in lines:
                self._say(f"{who} {event.conversation}: {line}")


class LiveProgress(ProgressDisplay):
    """Shows a few rows that are updated in place and removed at the end."""

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
        view = self.view
        rows.add_row(f"{time.time() - view.began if view.began else 0:.0f} s", f"[bold]{_plain(self._title)}[/bold]")
        rows.add_row("now", _plain(self.phase))
        if view.ends:
            rows.add_row("budget", time_left(view.ends, time.time()))
        if self.reference:
            rows.add_row("reference", _plain(self.reference))
        if spent := of_spending(view.spent):
            rows.add_row("model", spent)
        if view.judged:
            rows.add_row("candidates", view.counts)
        if self.best:
            rows.add_row("best", f"[green]{_plain(self.best)}[/green]")
        return rows


def choose_progress(title: str, *, silent: bool, words: bool = False) -> ProgressDisplay:
    """The display for stderr. With `silent` it prints only warnings; with `words` it also prints the text that a
    model writes."""
    if silent:
        return ProgressDisplay()
    if words:
        return ConversationProgress()
    return LiveProgress(title) if sys.stderr.isatty() else LineProgress()


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
