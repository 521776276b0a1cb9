"""A training run as it goes: stage, state and curves; pause, go on, stop."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from kernel_assistant.errors import StoreError
from kernel_assistant.session.threads import in_thread
from kernel_assistant.session.training_run import RunState, RunStatus, Wish, ask, read_status, wish_of
from kernel_assistant_tui.pane_keys import bindings_of
from kernel_assistant_tui.runs.metrics import Tail
from kernel_assistant_tui.widgets.curves import curve_lines
from kernel_assistant_tui.widgets.glyphs import clean, glyph
from kernel_assistant_tui.widgets.line_view import LineView

EVERY_S = 1.0
#: A second press of the key that stops a run counts for so long.
SURE_S = 5.0
EMPTY = "No training run is open. A run is a folder with metrics.jsonl, as pretrain, sft and train write it."
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
    Training > #training-lines { height: 1fr; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("training")]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.run: Path | None = None
        self._tail: Tail | None = None
        self._status: RunStatus | None = None
        self._wish = Wish.go_on
        self._trouble = ""
        self._stage = ""
        self._asking = False
        self._stop_pressed = float("-inf")

    def compose(self) -> ComposeResult:
        yield Static(EMPTY, id="training-head", markup=False)
        yield LineView(wrap=False, id="training-lines")

    def on_mount(self) -> None:
        self.set_interval(EVERY_S, self._look)

    def on_focus(self) -> None:
        self.query_one(LineView).focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def open(self, run: Path) -> None:
        """Watch the run in this folder from now on."""
        self.run, self._tail, self._stage, self._trouble = run, Tail(run), "", ""
        self._read()

    def action_pause(self) -> None:
        """Pause it, or let it go on where it is paused or about to be."""
        if self._can_ask():
            self._ask(Wish.go_on if self._wish is Wish.pause else Wish.pause)

    def action_stop(self) -> None:
        if not self._can_ask():
            return
        if time.monotonic() - self._stop_pressed > SURE_S:
            self._stop_pressed = time.monotonic()
            self._say("the same key again stops the run: it saves and ends")
        else:
            self._ask(Wish.stop)

    def action_stage(self) -> None:
        """The next stage's curves."""
        names = list(self._tail.stages) if self._tail is not None else []
        if names:
            at = names.index(self._stage) if self._stage in names else len(names) - 1
            self._stage = names[(at + 1) % len(names)]
            self._draw()

    def _look(self) -> None:
        if self.run is not None and not self._asking and self.is_on_screen and self.screen.is_current:
            self._read()

    @work(group="training")
    async def _read(self) -> None:
        """One look at the files, which is drawn also where another was wanted meanwhile: what was read once is not new
        to the next."""
        run, tail = self.run, self._tail
        if run is None or tail is None or self._asking:
            return
        self._asking = True
        fresh, trouble = False, ""
        try:
            try:
                fresh = await in_thread(tail.read)
            except OSError as error:
                trouble = f"{tail.path} cannot be read: {error.strerror}"
            status, wish = await in_thread(lambda: (read_status(run), wish_of(run)))
        finally:
            self._asking = False
        before = (self._status, self._wish, self._trouble)
        if tail is self._tail:
            self._status, self._wish, self._trouble = status, wish, trouble
            if fresh or before != (status, wish, trouble):
                self._draw()

    def _can_ask(self) -> bool:
        status = self._status
        if self.run is None or status is None or not status.state.active:
            self._say(NO_STATUS if self.run is not None and status is None else "no run is going on here")
            return False
        return True

    def _ask(self, wish: Wish) -> None:
        assert self.run is not None
        try:
            ask(self.run, wish)
        except StoreError as error:
            self._say(error.cause)
            return
        self._wish = wish
        self._draw()

    def _say(self, words: str) -> None:
        self.notify(words, timeout=4, markup=False)

    def _draw(self) -> None:
        if self.run is None or self._tail is None or not self.is_attached:
            return
        self.query_one("#training-head", Static).update(self._head(self.run))
        stages = self._tail.stages
        stage = stages.get(self._stage) or (list(stages.values())[-1] if stages else None)
        lines = self.query_one(LineView)
        width = lines.scrollable_content_region.width
        if stage is None:
            lines.replace([Content.styled("nothing was reported yet", "$text 60%")])
        elif width:
            lines.replace(curve_lines(stage, width))

    def _head(self, run: Path) -> Content:
        dot = glyph(" · ", " - ")
        parts: list[Content | str | tuple[str, str]] = [(clean(run.name), "bold $text-primary")]
        status = self._status
        if status is None:
            parts.append((dot + NO_STATUS, "$text 60%"))
        else:
            parts += [f"{dot}{clean(status.stage)}{dot}", (status.state.value, _STATES.get(status.state, "bold"))]
            parts.append(f"{dot}step {status.step}")
            parts.append(f"{dot}{_asked(self._wish)}" if status.state.active and _pending(status, self._wish) else "")
        names = list(self._tail.stages) if self._tail is not None else []
        if len(names) > 1:
            parts.append((f"{dot}stages {', '.join(map(clean, names))} ", "$text 60%"))
        if status is not None and status.message:
            parts.append((f"\n{clean(status.message)}", "$text-error"))
        if self._trouble:
            parts.append((f"\n{clean(self._trouble)}", "$text-error"))
        return Content.assemble(*parts)


def _pending(status: RunStatus, wish: Wish) -> bool:
    """Something was asked that the run has not done yet."""
    return wish is Wish.stop or (wish is Wish.pause) != (status.state is RunState.paused)


def _asked(wish: Wish) -> str:
    return {Wish.pause: "asked to pause", Wish.stop: "asked to stop", Wish.go_on: "asked to go on"}[wish]
