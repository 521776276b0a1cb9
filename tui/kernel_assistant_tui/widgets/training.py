"""The pane of a training run: its stages, its state and curves, with keys to pause, continue and stop the run."""

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
from kernel_assistant.session.training_run import RunState, RunStatus, TrainingCommand, ask
from kernel_assistant.session.training_stages import clock
from kernel_assistant_tui.pane_keys import bindings_of
from kernel_assistant_tui.runs.reading import RunReader, RunSnapshot
from kernel_assistant_tui.widgets.curves import curve_lines
from kernel_assistant_tui.widgets.glyphs import clean, glyph
from kernel_assistant_tui.widgets.line_view import LineView, StyledText
from kernel_assistant_tui.widgets.stages import clickable, stage_at, stage_lines

EVERY_S = 1.0
#: Seconds within which the key that stops a run must be pressed a second time.
SURE_S = 5.0
EMPTY = (
    "No training run is open. The key of this tab opens one: of a list, or by its folder (with metrics.jsonl in it).\n"
    "To begin one: kernel-assistant train --recipe smoke --out RUN"
)
NOTHING = "nothing was reported yet"
NO_STATUS = "it says nothing of its state: it can be watched, not paused"
_STATES = {
    RunState.running: "bold $text-success",
    RunState.paused: "bold $text-warning",
    RunState.failed: "bold $text-error",
    RunState.died: "bold $text-error",
}


class Training(Vertical, can_focus=True):
    """Shows a training run. While the pane is visible, a thread reads the folder of the run each second."""

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
        self._reading: RunReader | None = None
        self._seen: RunSnapshot | None = None
        self._stage = ""
        self._asking = False
        self._stop_pressed = float("-inf")

    def compose(self) -> ComposeResult:
        yield Static(EMPTY, id="training-head", markup=False)
        yield Static("", id="training-stages", markup=False)
        yield LineView(wrap=False, id="training-lines")

    def on_mount(self) -> None:
        self.set_interval(EVERY_S, self._read_if_visible)

    def on_focus(self) -> None:
        self.query_one(LineView).focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def open(self, run: Path) -> None:
        """Show the run in the folder `run`."""
        self.run, self._reading, self._seen, self._stage = run, RunReader(run), None, ""
        self._read()

    def action_pause(self) -> None:
        """Pause the run, or let it continue if the last command was to pause."""
        if self._can_ask():
            self._ask(
                TrainingCommand.go_on
                if self._seen is not None and self._seen.command is TrainingCommand.pause
                else TrainingCommand.pause
            )

    def action_stop(self) -> None:
        if not self._can_ask():
            return
        if time.monotonic() - self._stop_pressed > SURE_S:
            self._stop_pressed = time.monotonic()
            self._say("the same key again stops the run: it saves and ends")
        else:
            self._ask(TrainingCommand.stop)

    def action_stage(self) -> None:
        """Show the curves of the next stage; after the last stage, those of the first."""
        seen = self._seen
        if seen is None:
            return
        names = _with_curves(seen)
        if names:
            at = names.index(seen.chosen) if seen.chosen in names else -1
            self._choose(names[(at + 1) % len(names)])

    def on_click(self, event: events.Click) -> None:
        """Show the curves of the stage under the mouse."""
        stage = stage_at(event)
        if stage and self._seen is not None:
            if stage in _with_curves(self._seen):
                self._choose(stage)
            else:
                self._say(f"{stage} has not begun")

    def _choose(self, stage: str) -> None:
        self._stage = stage
        self._read()

    def _read_if_visible(self) -> None:
        if self.run is not None and not self._asking and self.is_on_screen and self.screen.is_current:
            self._read()

    @work(group="training")
    async def _read(self) -> None:
        """Reads the run once, in a thread, and draws it. Draws it even if another stage was chosen meanwhile, because
        the next reading would not report these curves as new."""
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

    def _ask(self, command: TrainingCommand) -> None:
        assert self.run is not None
        try:
            ask(self.run, command)
        except StoreError as error:
            self._say(error.cause)
            return
        if self._seen is not None:
            self._seen = replace(self._seen, command=command)
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

    def _below(self, seen: RunSnapshot, width: int) -> list[Content | StyledText]:
        """Return the lines with the curves of the chosen stage, or with the end of its log if it has no curves."""
        curves = seen.curves if seen.stages else [one for one in seen.curves if one.name == seen.chosen]
        drawn: list[Content | StyledText] = []
        for one in curves:
            drawn += [Content.styled(clean(one.name), "bold $text-primary")] if len(curves) > 1 else []
            drawn += curve_lines(one, width)
        if drawn:
            return [Content(""), *drawn] if seen.stages else drawn
        going = any(one.name == seen.chosen and one.state in ("running", "paused") for one in seen.stages)
        message = f"{seen.chosen}: no figures{' yet' if going else ''}; the end of its log:" if seen.log else NOTHING
        return [StyledText(clean(message), "$text 60%"), *(StyledText(clean(line), "$text") for line in seen.log)]

    def _head(self, run: Path, seen: RunSnapshot) -> Content:
        dot = glyph(" · ", " - ")
        parts: list[Content | str | tuple[str, str]] = [(clean(run.name), "bold $text-primary")]
        status, command = seen.status, seen.command
        if status is None:
            parts.append((dot + NO_STATUS, "$text 60%"))
        else:
            over = bool(seen.stages) and not status.state.active
            parts += [dot if over else f"{dot}{clean(status.stage)}{dot}"]
            parts.append((status.state.value, _STATES.get(status.state, "bold")))
            parts.append("" if over else f"{dot}step {status.step}")
            parts.append(f"{dot}{_asked(command)}" if status.state.active and _pending(status, command) else "")
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


def _with_curves(seen: RunSnapshot) -> list[str]:
    """Returns the names of the stages that the user can choose: those that have begun or, in a run without a recipe,
    those with curves."""
    return [one.name for one in seen.stages if one.begun] or [one.name for one in seen.curves]


def _pending(status: RunStatus, command: TrainingCommand) -> bool:
    """Return whether the run has not carried out the last command yet."""
    return command is TrainingCommand.stop or (command is TrainingCommand.pause) != (status.state is RunState.paused)


def _asked(command: TrainingCommand) -> str:
    return {
        TrainingCommand.pause: "asked to pause",
        TrainingCommand.stop: "asked to stop",
        TrainingCommand.go_on: "asked to go on",
    }[command]
