"""The main screen: its panes, tabs and footer, and the handlers of messages. The actions are in flows/."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.css.query import NoMatches
from textual.widget import Widget
from textual.widgets import Input, Static

from kernel_assistant_tui.actions import shown_key
from kernel_assistant_tui.following import JobFollower
from kernel_assistant_tui.host.follow import JobEvents, JobFollowed, JobLost
from kernel_assistant_tui.project.module import Module
from kernel_assistant_tui.screens.acting import ActingScreen
from kernel_assistant_tui.screens.panes import PANES, SMALLEST, is_tiny, is_wide
from kernel_assistant_tui.view.search_view import SearchView
from kernel_assistant_tui.widgets.devices import Devices
from kernel_assistant_tui.widgets.episode import Episode
from kernel_assistant_tui.widgets.footer import Keys
from kernel_assistant_tui.widgets.modules import Modules
from kernel_assistant_tui.widgets.result import Result
from kernel_assistant_tui.widgets.rows import Rows
from kernel_assistant_tui.widgets.tabs import TRAINING, JobTabs, Tab
from kernel_assistant_tui.widgets.training import Training

W = TypeVar("W", bound=Widget)

#: Seconds between checks for changes by other front ends.
ROUND_S = 2.0


class MainScreen(ActingScreen):
    """The screen with the widgets of all panes. It passes messages to them."""

    #: Nothing is focused behind a dialog: Textual would focus the first field, which is the closed search line.
    AUTO_FOCUS: ClassVar[str | None] = ""

    def __init__(self, root: Path, *, id: str) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._root = root
        self.training_open = False
        self._steering = False
        self.following = JobFollower(self)

    def compose(self) -> ComposeResult:
        yield JobTabs()
        with Horizontal(id="panes"):
            yield self._framed(Modules(str(self._root), id="modules"), "modules")
            with self._framed(Vertical(id="middle"), "episode"):
                yield Episode(id="episode")
                yield Training(id="training")
                yield Input(placeholder="tell the model; enter sends it", id="steer", compact=True)
            yield self._framed(Result(id="result"), "result")
        yield self._framed(Devices(id="devices"), "devices")
        yield Static(f"The window is too small: {SMALLEST.width} x {SMALLEST.height} at least.", id="tiny")
        yield Keys()

    async def on_mount(self) -> None:
        self.query_one("#steer", Input).cursor_blink = False
        self.show_pane("modules")
        self.following.start()
        self.set_interval(ROUND_S, lambda: self.flow(self.following.round))
        for warning in self.work.warnings:
            self.say(warning, severity="warning")

    def keep_words(self, words: str) -> None:
        """Put a message that could not be sent back into the input line."""
        self.query_one("#steer", Input).value = words
        self.steering = True

    def go(self, name: str) -> None:
        """Show a pane and focus it."""
        self._pane = name
        if name in ("episode", "training"):
            self.in_training = name == "training"
        self._lay_out()
        self._focus(PANES[name].focus)
        self.refresh_keys()

    def show_pane(self, name: str) -> None:
        self.go(name)
        self.show_job()

    def open_training(self, run: Path) -> None:
        self.query_one(Training).open(run)
        self.training_open = True

    @property
    def steering(self) -> bool:
        """Whether the input line for messages to the model is open."""
        return self._steering

    @steering.setter
    def steering(self, steering: bool) -> None:
        if steering != self._steering:
            self._steering = steering
            self._lay_out()

    def show_modules(self, modules: tuple[Module, ...]) -> None:
        if not self.alive:
            return
        self.query_one(Modules).show(modules)
        if self.focused is None and self._pane == "modules":
            self._focus(PANES["modules"].focus)  # a list that was empty had none
        self.refresh_keys()

    def show_job(self) -> None:
        """Draw the tabs, and the job of the current tab."""
        if not self.alive:
            return
        following = self.following
        tabs = [Tab(one.key, one.label) for one in following.jobs]
        training = self.in_training
        self.query_one(JobTabs).show([*tabs, Tab(TRAINING, "training")], TRAINING if training else following.key)
        job = following.current
        view = SearchView(job="") if job is None else job.view
        self.query_one(Episode).show(view)
        self.query_one(Result).show(view)
        self.query_one("#middle").border_title = self._title("training" if training else "episode")
        if job is None or not job.running:
            self.steering = False
        self.refresh_keys()

    # Messages

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(not is_wide(event.size), "-narrow")
        self._lay_out()
        self.refresh_keys()

    def on_screen_suspend(self) -> None:
        """Hide the keys of the footer while a dialog or the palette is open, because the keys do not work then."""
        self._keys_count(False)

    def on_screen_resume(self) -> None:
        self._keys_count(True)

    def on_descendant_focus(self) -> None:
        self.refresh_keys()

    @on(Rows.Moved, "#module-rows")
    def module_moved(self) -> None:
        self.refresh_keys()

    @on(Rows.ItemChosen, "#module-rows")
    def module_chosen(self) -> None:
        self.flow(self.following.open_chosen)

    def on_job_tabs_picked(self, event: JobTabs.Picked) -> None:
        if event.key == TRAINING:
            self.action_act("training")
        else:
            self.following.show(event.key)

    @on(Input.Submitted, "#steer")
    def steered(self, event: Input.Submitted) -> None:
        from kernel_assistant_tui.flows.run import send

        words = event.value.strip()
        event.input.value = ""
        self.steering = False
        self._focus(PANES["episode"].focus)
        if words:
            self.flow(lambda: send(self, words))

    def on_job_events(self, message: JobEvents) -> None:
        self.following.hear(message)

    def on_job_lost(self, message: JobLost) -> None:
        self.say(f"job {message.job}: {message.why}; starting it again", severity="warning")

    def on_job_followed(self, message: JobFollowed) -> None:
        self.following.ended(message)

    def _keys_count(self, count: bool) -> None:
        """Show or hide the footer's keys. The footer keeps its height, so that nothing moves. At the start there is
        no footer yet."""
        for footer in self.query(Keys):
            footer.visible = count

    def _lay_out(self) -> None:
        """Show the widgets that fit into the window. Each one is switched by itself: a CSS class would update all
        styles."""
        wide, tiny = is_wide(self.app.size), is_tiny(self.app.size)
        shown = PANES[self._pane].widget
        # The curves need the whole width, and do not belong to a class.
        hidden = ("modules", "result") if self._pane == "training" else ()
        for name in ("modules", "middle", "result", "devices"):
            self.query_one(f"#{name}").display = not tiny and (name not in hidden if wide else name == shown)
        self.query_one("#panes").display = not tiny and (wide or shown != "devices")
        self.query_one(JobTabs).display = self.query_one(Keys).display = not tiny
        self.query_one("#tiny").display = tiny
        self.query_one(Training).display = self.in_training
        self.query_one(Episode).display = not self.in_training
        self.query_one("#steer").display = self.steering and not self.in_training

    def _focus(self, selector: str) -> None:
        try:
            widget = self.query_one(selector)
        except NoMatches:
            return
        # Not `focus()`, which takes effect only after the next key.
        inside = [one for one in (widget, *widget.query("*")) if one.focusable]
        self.set_focus(inside[0] if inside else None)

    def _framed(self, widget: W, name: str) -> W:
        widget.add_class("pane")
        widget.border_title = self._title(name)
        return widget

    def _title(self, name: str) -> str:
        return f"{shown_key(self.work.preferences.key(name))} {name}"
