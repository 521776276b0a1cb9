"""A training run as it goes: stage, state and curves; pause, go on, stop."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from kernel_assistant.errors import StoreError
from kernel_assistant.session.threads import in_thread
from kernel_assistant.session.training_run import RunState, RunStatus, Wish, ask
from kernel_assistant_tui.pane_keys import bindings_of
from kernel_assistant_tui.runs.reading import Look, Reading
from kernel_assistant_tui.widgets.curves import curve_lines
from kernel_assistant_tui.widgets.glyphs import clean, glyph
from kernel_assistant_tui.widgets.line_view import LineView, Plain
from kernel_assistant_tui.widgets.stages import clickable, clock, stage_at, stage_lines

EVERY_S = 1.0
#: A second press of the key that stops a run counts for so long.
SURE_S = 5.0
EMPTY = "No training run is open. A run is a folder with metrics.jsonl, as pretrain, sft and train write it."
NOTHING = "nothing was reported yet"
NO_STATUS = "it says nothing of its state: it can be watched, not paused"
_STATES = {
    RunState.running: "bold $text-success",
    RunState.paused: "bold $text-warning",
    RunState.failed: "bold $text-error",
    RunState.died: "bold $text-error",
}


class Training(Vertical, can_focus=True):
    """Reads its folder in a thread each second, while it is seen."""

    DEFAULT_CSS = """
    Training { height: 1fr; }
    Training > #training-head { height: auto; max-height: 4; padding: 0 1; background: $panel; }
    Training > #training-stages { height: auto; max-height: 60%; padding: 0 1; display: none; }
    Training > #training-lines { height: 1fr; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("training")]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.run: Path | None = None
        self._reading: Reading | None = None
        self._seen: Look | None = None
        self._stage = ""
        self._asking = False
        self._stop_pressed = float("-inf")

    def compose(self) -> ComposeResult:
        yield Static(EMPTY, id="training-head", markup=False)
        yield Static("", id="training-stages", markup=False)
        yield LineView(wrap=False, id="training-lines")

    def on_mount(self) -> None:
        self.set_interval(EVERY_S, self._look)

    def on_focus(self) -> None:
        self.query_one(LineView).focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def open(self, run: Path) -> None:
        """Watch the run in this folder from now on."""
        self.run, self._reading, self._seen, self._stage = run, Reading(run), None, ""
        self._read()

    def action_pause(self) -> None:
        """Pause it, or let it go on where it is paused or about to be."""
        if self._can_ask():
            self._ask(Wish.go_on if self._seen is not None and self._seen.wish is Wish.pause else Wish.pause)

    def action_stop(self) -> None:
        if not self._can_ask():
            return
        if time.monotonic() - self._stop_pressed > SURE_S:
            self._stop_pressed = time.monotonic()
            self._say("the same key again stops the run: it saves and ends")
        else:
            self._ask(Wish.stop)

    def action_stage(self) -> None:
        """The next stage's curves; behind the last one the first."""
        seen = self._seen
        if seen is None:
            return
        names = _with_curves(seen)
        if names:
            at = names.index(seen.chosen) if seen.chosen in names else -1
            self._choose(names[(at + 1) % len(names)])

    def on_click(self, event: events.Click) -> None:
        """A stage that is clicked is the one whose curves are shown."""
        stage = stage_at(event)
        if stage and self._seen is not None:
            if stage in _with_curves(self._seen):
                self._choose(stage)
            else:
                self._say(f"{stage} has not begun")

    def _choose(self, stage: str) -> None:
        self._stage = stage
        self._read()

    def _look(self) -> None:
        if self.run is not None and not self._asking and self.is_on_screen and self.screen.is_current:
            self._read()

    @work(group="training")
    async def _read(self) -> None:
        """One look at the files, which is drawn also where another was wanted meanwhile: what was read once is not new
        to the next."""
        reading, wanted = self._reading, self._stage
        if reading is None or self._asking:
            return
        self._asking = True
        try:
            seen = await in_thread(lambda: reading.look(wanted))
        finally:
            self._asking = False
        if reading is self._reading:
            before, self._seen = self._seen, seen
            if seen.fresh or before is None or replace(before, fresh=False) != seen:
                self._draw()
            if self._stage != wanted:
                self._read()

    def _can_ask(self) -> bool:
        status = self._seen.status if self._seen is not None else None
        if self._seen is None or status is None or not status.state.active:
            self._say(NO_STATUS if self._seen is not None and status is None else "no run is going on here")
            return False
        return True

    def _ask(self, wish: Wish) -> None:
        assert self.run is not None
        try:
            ask(self.run, wish)
        except StoreError as error:
            self._say(error.cause)
            return
        if self._seen is not None:
            self._seen = replace(self._seen, wish=wish)
        self._draw()

    def _say(self, words: str) -> None:
        self.notify(words, timeout=4, markup=False)

    def _draw(self) -> None:
        seen = self._seen
        if self.run is None or seen is None or not self.is_attached:
            return
        self.query_one("#training-head", Static).update(self._head(self.run, seen))
        lines = self.query_one(LineView)
        width = lines.scrollable_content_region.width
        stages = self.query_one("#training-stages", Static)
        stages.display = bool(seen.stages)
        if width:
            shown = stage_lines(seen.stages, seen.chosen, width, self.size.height)
            stages.update(Content("\n").join(shown), layout=len(shown) != stages.content_size.height)
            lines.replace(self._below(seen, width))

    def _below(self, seen: Look, width: int) -> list[Content | Plain]:
        """Curves of the chosen stage; what it says where it has none."""
        curves = seen.curves if seen.stages else [one for one in seen.curves if one.name == seen.chosen]
        found: list[Content | Plain] = []
        for one in curves:
            found += [Content.styled(clean(one.name), "bold $text-primary")] if len(curves) > 1 else []
            found += curve_lines(one, width)
        if found:
            return [Content(""), *found] if seen.stages else found
        going = any(one.name == seen.chosen and one.state in ("running", "paused") for one in seen.stages)
        said = f"{seen.chosen}: no figures{' yet' if going else ''}; the end of its log:" if seen.log else NOTHING
        return [Plain(clean(said), "$text 60%"), *(Plain(clean(line), "$text") for line in seen.log)]

    def _head(self, run: Path, seen: Look) -> Content:
        dot = glyph(" · ", " - ")
        parts: list[Content | str | tuple[str, str]] = [(clean(run.name), "bold $text-primary")]
        status, wish = seen.status, seen.wish
        if status is None:
            parts.append((dot + NO_STATUS, "$text 60%"))
        else:
            over = bool(seen.stages) and not status.state.active
            parts += [dot if over else f"{dot}{clean(status.stage)}{dot}"]
            parts.append((status.state.value, _STATES.get(status.state, "bold")))
            parts.append("" if over else f"{dot}step {status.step}")
            parts.append(f"{dot}{_asked(wish)}" if status.state.active and _pending(status, wish) else "")
        if seen.stages:
            spent, limit = sum(one.seconds for one in seen.stages), sum(one.limit for one in seen.stages)
            parts.append((f"{dot}{clock(spent)} of at most {clock(limit)}", "$text 60%"))
        elif len(seen.curves) > 1:
            names = [_clickable_name(one.name, seen.chosen) for one in seen.curves]
            parts += [(f"{dot}stages ", "$text 60%"), Content.styled(", ", "$text 60%").join(names)]
        if seen.report and not (status is not None and status.state.active):
            parts.append((f"{dot}report.md in {clean(str(run))}", "$text 60%"))
        if status is not None and status.message and status.message != status.state.value:
            parts.append((f"\n{clean(status.message)}", "$text-error"))
        if seen.trouble:
            parts.append((f"\n{clean(seen.trouble)}", "$text-error"))
        return Content.assemble(*parts)


def _clickable_name(stage: str, chosen: str) -> Content:
    return clickable(Content.styled(clean(stage), "bold" if stage == chosen else "$text 60%"), stage)


def _with_curves(seen: Look) -> list[str]:
    """Stages that can be looked at: of a recipe those that have begun."""
    return [one.name for one in seen.stages if one.begun] or [one.name for one in seen.curves]


def _pending(status: RunStatus, wish: Wish) -> bool:
    """Something was asked that the run has not done yet."""
    return wish is Wish.stop or (wish is Wish.pause) != (status.state is RunState.paused)


def _asked(wish: Wish) -> str:
    return {Wish.pause: "asked to pause", Wish.stop: "asked to stop", Wish.go_on: "asked to go on"}[wish]
