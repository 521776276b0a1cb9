"""The pane of the running episode. It shows messages, tool calls, evaluations and measurements as they arrive."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from kernel_assistant.session.reporting.words import of_spending, time_left
from kernel_assistant.store import JobState
from kernel_assistant_tui.pane_keys import bindings_of
from kernel_assistant_tui.view.lines import Line, LineKind
from kernel_assistant_tui.view.search_view import SearchView
from kernel_assistant_tui.view.telling import plain_best
from kernel_assistant_tui.widgets.glyphs import clean, glyph
from kernel_assistant_tui.widgets.line_view import LineView, StyledText

_STYLES = {
    LineKind.phase: "$text 60%",
    LineKind.said: "$text",
    LineKind.code: "$text-primary",
    LineKind.call: "bold $text-accent",
    LineKind.heard: "$text 60%",
    LineKind.user: "bold $text-secondary",
    LineKind.good: "$text-success",
    LineKind.bad: "$text-warning",
    LineKind.detail: "$text-error",
    LineKind.best: "bold $text-success",
    LineKind.free: "$text-primary",
    LineKind.warning: "$text-warning",
    LineKind.failure: "bold $text-error",
    LineKind.end: "bold",
}
_EMPTY = "Nothing runs here. Choose a module and start, or open a job from history."


class Episode(Vertical):
    """The transcript of a job. Call `show` after every batch of events: it draws the new lines."""

    DEFAULT_CSS = """
    Episode { height: 1fr; }
    Episode > #episode-head { height: auto; max-height: 3; padding: 0 1; background: $panel; color: $text; }
    Episode > #episode-lines { height: 1fr; padding: 0 1; }
    Episode > #episode-foot { height: 1; padding: 0 1; color: $text-muted; }
    Episode > #episode-search { display: none; height: 1; border: none; padding: 0 1; }
    Episode > #episode-search.-open { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_of("episode"),
        Binding("escape", "close_search", "close search", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._view: SearchView | None = None
        self._shown = 0
        self._only = 0

    def compose(self) -> ComposeResult:
        yield Static(_EMPTY, id="episode-head", markup=False)
        yield LineView(follow=True, id="episode-lines")
        yield Input(placeholder="find in the transcript", id="episode-search")
        yield Static("", id="episode-foot", markup=False)

    @property
    def lines(self) -> LineView:
        return self.query_one("#episode-lines", LineView)

    @property
    def text(self) -> str:
        """The whole transcript, for copying."""
        return self.lines.text

    def show(self, view: SearchView) -> None:
        """Draw `view`. If it shows the same job as before, only the new lines are drawn."""
        known, self._view = self._view, view
        same = known is not None and known.job == view.job and len(view.lines) >= self._shown
        if known is None or not same or (view.conversations > 1) != (known.conversations > 1):
            self._only = self._only if same else 0
            self._all()
        else:
            self.lines.append(map(self._content, filter(self._wanted, view.lines[self._shown :])))
        self._shown = len(view.lines)
        self._tell()

    def action_search(self) -> None:
        line = self.query_one("#episode-search", Input)
        line.add_class("-open")
        line.focus()

    def action_close_search(self) -> None:
        line = self.query_one("#episode-search", Input)
        line.remove_class("-open")
        self.lines.find("")
        self.lines.focus()
        self._tell()

    def action_find(self, step: int) -> None:
        self.lines.find_next(step)
        self._tell()

    def action_follow(self) -> None:
        self.lines.follow_end()

    def action_only(self) -> None:
        """Show only the next conversation; after the last conversation, show all conversations again."""
        if self._view is not None and self._view.conversations > 1:
            self._only = (self._only + 1) % (self._view.conversations + 1)
            self._all()
            self._tell()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.lines.find(event.value)
        self._tell()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.lines.focus()

    def on_line_view_follow_changed(self, event: LineView.FollowChanged) -> None:
        event.stop()
        self._tell()

    def _all(self) -> None:
        lines = [] if self._view is None else self._view.lines
        self.lines.replace(map(self._content, filter(self._wanted, lines)))

    def _wanted(self, line: Line) -> bool:
        return not self._only or line.conversation in (0, self._only)

    def _content(self, line: Line) -> StyledText:
        several = self._view is not None and self._view.conversations > 1
        label = f"[{line.conversation}] " if line.conversation and several else ""
        return StyledText(label + clean(line.text), _STYLES[line.kind])

    def _tell(self) -> None:
        view = self._view
        if view is None or not view.job:
            self.query_one("#episode-head", Static).update(_EMPTY)
            self.query_one("#episode-foot", Static).update("")
            return
        best = f"best {plain_best(view.best)}" if view.best else ""
        left = time_left(view.ends, view.now) if view.state is JobState.running else ""
        parts = [view.phase, left, view.counts if view.candidates else "", best, of_spending(view.spent)]
        dot = glyph(" · ", " - ")
        self.query_one("#episode-head", Static).update(clean(dot.join(part for part in parts if part)))
        here, count = self.lines.matches
        notes = [
            "" if self.lines.follow else "not following",
            f"match {here} of {count}" if count else "",
            f"conversation {self._only} alone" if self._only else "",
        ]
        where = f"{len(view.lines)} lines"
        self.query_one("#episode-foot", Static).update(clean(dot.join([where, *(note for note in notes if note)])))
