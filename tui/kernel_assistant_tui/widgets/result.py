"""The pane of the best result, during a job or at its end: measurements, candidates, source, and the diff of
applying."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import TabbedContent, TabPane

from kernel_assistant.config import resolve
from kernel_assistant.session.threads import in_thread
from kernel_assistant_tui.host.stored_jobs import StoredJobs
from kernel_assistant_tui.pane_keys import bindings_of
from kernel_assistant_tui.view.search_view import SearchView
from kernel_assistant_tui.widgets.candidates import Candidates
from kernel_assistant_tui.widgets.code import diff_lines, source_lines
from kernel_assistant_tui.widgets.compare import NO_SOURCE, compared
from kernel_assistant_tui.widgets.figures import EMPTY, best_lines
from kernel_assistant_tui.widgets.glyphs import utf8
from kernel_assistant_tui.widgets.line_view import LineView, StyledText

#: Shortest time in seconds between two updates of the table of candidates.
TABLE_EVERY_S = 0.5


class Result(Vertical, can_focus=True):
    """Shows the result of a job in several tabs. Call `show` after every batch of events. Only the visible tab is
    drawn; files are read in threads."""

    DEFAULT_CSS = """
    Result { height: 1fr; }
    Result TabbedContent, Result ContentSwitcher { height: 1fr; }
    Result TabPane { padding: 0 1; height: 1fr; }
    Result LineView, Result DataTable { height: 1fr; background: transparent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("result")]

    def __init__(self, state_dir: Path | None = None, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._kept = StoredJobs(resolve()[0].state_dir if state_dir is None else state_dir)
        self._view: SearchView | None = None
        self._facts: list[tuple[str, str]] = []
        self._chosen = ""
        self._pair: tuple[str, str] | None = None
        self._drawn: dict[str, object] = {}
        self._table_shown, self._waiting = float("-inf"), False

    def compose(self) -> ComposeResult:
        with TabbedContent(initial="best"):
            with TabPane("Best", id="best"):
                yield LineView(id="best-lines")
            with TabPane("Candidates", id="candidates"):
                yield Candidates(id="candidate-table")
            with TabPane("Source", id="source"):
                yield LineView(wrap=False, id="source-lines")
            with TabPane("Diff", id="diff"):
                yield LineView(wrap=False, id="diff-lines")
            with TabPane("Compare", id="compare"):
                yield LineView(wrap=False, id="compare-lines")

    def on_mount(self) -> None:
        self._lines("best").replace([_muted(EMPTY)])
        # The visible pane gets the keys, not the row of tab names.
        self.query_one("Tabs").can_focus = False
        self.query_one("Underline").display = utf8()

    @property
    def text(self) -> str:
        """The text of the visible tab, for copying; "" for the table of candidates."""
        return "" if self._active == "candidates" else self._lines(self._active).text

    def show(self, view: SearchView) -> None:
        """Draw `view` if anything that the visible tab shows has changed."""
        before, self._view = self._view, view
        if before is None or before.job != view.job:
            self._facts, self._chosen, self._pair, self._drawn = [], "", None, {}
        if view.result is not None and (before is None or before.result is not view.result):
            self._read_facts(view)
        self._draw()

    def action_pane(self, name: str) -> None:
        self.query_one(TabbedContent).active = name
        self._focus_pane()

    def on_focus(self) -> None:
        self._focus_pane()

    def on_tabbed_content_tab_activated(self, event: TabbedContent.TabActivated) -> None:
        event.stop()
        self._draw()
        if self.has_focus_within:
            self._focus_pane()

    def on_resize(self) -> None:
        self._drawn.pop("best", None)
        self._drawn.pop("compare", None)
        self.call_after_refresh(self._draw)

    def on_candidates_chosen(self, event: Candidates.Chosen) -> None:
        event.stop()
        self._chosen = event.candidate
        self.action_pane("source")

    def on_candidates_paired(self, event: Candidates.Paired) -> None:
        event.stop()
        self._pair = (event.first, event.second)
        self.action_pane("compare")

    @property
    def _active(self) -> str:
        return self.query_one(TabbedContent).active or "best"

    def _lines(self, pane: str) -> LineView:
        return self.query_one(f"#{pane}-lines", LineView)

    def _focus_pane(self) -> None:
        if self._active == "candidates":
            self.query_one(Candidates).focus()
        else:
            self._lines(self._active).focus()

    def _draw(self) -> None:
        """Draw the visible tab if the values on which it depends have changed."""
        view, pane = self._view, self._active
        if view is None:
            return
        needs = self._needs(view, pane)
        if self._drawn.get(pane) == needs:
            return
        fresh = pane not in self._drawn
        self._drawn[pane] = needs
        if pane == "best":
            width = self._lines("best").scrollable_content_region.width
            self._lines("best").replace(best_lines(view, self._facts, width or 60))
        elif pane == "candidates":
            self._show_table(view, fresh)
        else:
            {"source": self._read_source, "diff": self._read_diff, "compare": self._read_pair}[pane](view)

    def _show_table(self, view: SearchView, fresh: bool) -> None:
        """Update the table of candidates, at most twice a second: each update sorts and measures all rows."""
        if not fresh and monotonic() - self._table_shown < TABLE_EVERY_S:
            self._drawn["candidates"] = None
            if not self._waiting:
                self._waiting = True
                self.set_timer(TABLE_EVERY_S, self._show_later)
            return
        self._table_shown = monotonic()
        self.query_one(Candidates).show(view, fresh=fresh)

    def _show_later(self) -> None:
        self._waiting = False
        self._table_shown = float("-inf")
        self._draw()

    def _needs(self, view: SearchView, pane: str) -> object:
        shown = view.shown
        match pane:
            case "best":
                known = (view.state, view.best, view.baseline, view.turns, view.free_wins, len(view.candidates))
                facts = (view.spent, *self._facts)
                return *known, facts, shown and shown.evaluation.tier, self._lines("best").size.width
            case "candidates":
                return view.candidates, view.best
            case "source":
                return self._chosen or (shown.candidate if shown else ""), view.state, _here(view)
            case "diff":
                return view.result is None, _here(view)
            case _:
                return self._pair, view.state, _here(view)

    # With a description, because Textual would else format the whole view for each worker.
    @work(group="facts", exclusive=True, description="facts")
    async def _read_facts(self, view: SearchView) -> None:
        result = view.result
        if result is not None:
            known = view.shown.evaluation if view.shown is not None else None
            self._facts = await in_thread(lambda: self._kept.facts(result, known))
            self._draw()

    @work(group="source", exclusive=True, description="source")
    async def _read_source(self, view: SearchView) -> None:
        candidate = self._chosen or (view.shown.candidate if view.shown else "")
        self._lines("source").replace(await self._source(view, candidate))

    @work(group="diff", exclusive=True, description="diff")
    async def _read_diff(self, view: SearchView) -> None:
        self._lines("diff").replace(await self._diff(view))

    @work(group="compare", exclusive=True, description="compare")
    async def _read_pair(self, view: SearchView) -> None:
        self._lines("compare").replace(await self._compared(view, self.size.width - 4))

    async def _source(self, view: SearchView, candidate: str) -> list[Content | StyledText]:
        if not candidate:
            return [_muted("There is no candidate that is right yet; choose one in the table.")]
        sources = await in_thread(lambda: self._kept.sources(candidate))
        if not sources:
            return [_muted(f"{candidate[:8]}: {NO_SOURCE}.")]
        seen = view.seen(candidate)
        title = f"{candidate[:8]} of turn {seen.turn}, {seen.evaluation.outcome.value}" if seen else candidate[:8]
        return [_muted(title.replace("_", " ")), *await in_thread(lambda: source_lines(sources))]

    async def _diff(self, view: SearchView) -> list[Content | StyledText]:
        if view.result is None:
            return [_muted("What apply would change is known when the job has ended.")]
        diff, notes = await in_thread(lambda: self._kept.diff(_here(view)))
        warnings: list[Content | StyledText] = [StyledText(note, "$text-warning") for note in notes]
        return [*warnings, *diff_lines(diff)] if diff else warnings or [_muted("Nothing of your file would change.")]

    async def _compared(self, view: SearchView, width: int) -> list[Content | StyledText]:
        pair = [seen for name in self._pair or () if (seen := view.seen(name)) is not None]
        if len(pair) != 2:
            return [_muted("Mark two candidates in the table of candidates.")]
        sources = await in_thread(lambda: {one.candidate: self._kept.sources(one.candidate) for one in pair})
        return compared(pair[0], pair[1], sources, width)


def _here(view: SearchView) -> str:
    """Return the number of a job in the local store. A remote job gets this number when its result is copied here."""
    return view.job if view.result is None else view.result.artifacts.get("job", view.job)


def _muted(text: str) -> StyledText:
    return StyledText(text, "$text 60%")
