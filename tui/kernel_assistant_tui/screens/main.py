"""The main screen: panes, tabs, footer, and who is told what happens. What actions do is in flows/."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.css.query import NoMatches
from textual.keys import key_to_character
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, Static

from kernel_assistant.errors import KernelAssistantError, UsageError
from kernel_assistant.records import JobOutcome
from kernel_assistant_tui.actions import BY_NAME, Action, shown_key
from kernel_assistant_tui.following import Following
from kernel_assistant_tui.host.messages import JobEvents, JobFollowed, JobLost
from kernel_assistant_tui.jobs import OpenJob
from kernel_assistant_tui.keys import bindings, footer_keys
from kernel_assistant_tui.project.module import Module
from kernel_assistant_tui.screens.panes import PANES, SMALLEST, is_tiny, is_wide
from kernel_assistant_tui.view.job_view import empty
from kernel_assistant_tui.widgets.devices import Devices
from kernel_assistant_tui.widgets.episode import Episode
from kernel_assistant_tui.widgets.footer import Key, Keys
from kernel_assistant_tui.widgets.glyphs import clean
from kernel_assistant_tui.widgets.modules import Modules
from kernel_assistant_tui.widgets.result import Result
from kernel_assistant_tui.widgets.rows import Rows
from kernel_assistant_tui.widgets.tabs import TRAINING, JobTabs, Tab
from kernel_assistant_tui.widgets.training import Training

if TYPE_CHECKING:
    from kernel_assistant_tui.app import KernelAssistant

W = TypeVar("W", bound=Widget)

#: Outcomes of jobs that leave a candidate.
_WITH_KERNELS = (JobOutcome.improved.value, JobOutcome.no_measurable_gain.value)

#: Looks for what other terminals and editors have done.
ROUND_S = 2.0


class MainScreen(Screen[None]):
    """Flows use `work`, `following`, `module`, `job` and `say`; everything else is the screen's own."""

    BINDINGS: ClassVar[list[BindingType]] = list(bindings())

    def __init__(self, root: Path, *, id: str) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._root = root
        self._pane = "modules"
        self.training_open = False
        self.in_training = False
        self._steering = False
        self._open: set[str] = set()
        self.following = Following(self)

    @property
    def work(self) -> KernelAssistant:
        """The application, which has the settings, the project and the host."""
        return cast("KernelAssistant", self.app)

    def compose(self) -> ComposeResult:
        yield JobTabs()
        with Horizontal(id="panes"):
            yield _pane(Modules(str(self._root), id="modules"), "1 modules")
            with _pane(Vertical(id="middle"), "2 episode"):
                yield Episode(id="episode")
                yield Training(id="training")
                yield Input(placeholder="tell the model; enter sends it", id="steer", compact=True)
            yield _pane(Result(id="result"), "3 result")
        yield _pane(Devices(id="devices"), "4 devices")
        yield Static(f"The window is too small: {SMALLEST.width} x {SMALLEST.height} at least.", id="tiny")
        yield Keys()

    async def on_mount(self) -> None:
        self.query_one("#steer", Input).cursor_blink = False
        self.go("modules")
        self.following.start()
        self.set_interval(ROUND_S, self.following.round)
        for warning in self.work.warnings:
            self.say(warning, severity="warning")

    # What flows ask for

    @property
    def module(self) -> Module | None:
        """The class that is chosen, whichever pane has the keys."""
        return self.query_one(Modules).chosen

    @property
    def job(self) -> OpenJob | None:
        """The job whose tab is shown."""
        return self.following.current

    @property
    def pane(self) -> str:
        """The pane that has the keys; where none has, the one that was asked for last."""
        inside = {node.id for node in self.focused.ancestors_with_self} if self.focused is not None else set()
        found = [name for name, pane in PANES.items() if inside & {pane.widget, name}]
        return self._pane if not found or self._pane in found else found[0]

    @property
    def job_number(self) -> str:
        """The job that an action is about: the shown one, or the last of the class that is chosen where the modules
        have the keys. Raises UsageError where there is none."""
        module, job = self.module, self.job
        if module is not None and module.state.job and (self.pane == "modules" or job is None):
            return module.state.job
        if job is None:
            raise UsageError("no job is shown and the class has none", "start one")
        if not job.number:
            raise UsageError(f"the result of job {job.key} is not here yet", "wait until it has ended")
        return job.number

    @property
    def subject(self) -> Module | None:
        """The class that an action is about, by the same rule."""
        job, chosen = self.job, self.module
        if job is None or self.pane == "modules":
            return chosen
        return next(
            (one for one in self.query_one(Modules).all if one.key == (job.place.path, job.place.class_name)), chosen
        )

    def keep_words(self, words: str) -> None:
        """What could not be sent stands in its line again."""
        self.query_one("#steer", Input).value = words
        self.steering = True

    def say(self, words: str, *, severity: str = "information") -> None:
        words = "\n".join(clean(line) for line in words.splitlines())
        self.notify(words, severity=severity, markup=False, timeout=10 if severity == "error" else 5)  # type: ignore[arg-type]

    def say_error(self, error: KernelAssistantError) -> None:
        self.say(f"{error.cause}\n{error.next_step}" if error.next_step else error.cause, severity="error")

    def go(self, name: str) -> None:
        """Show a pane and give it the keys."""
        self._pane = name
        if name in ("episode", "training"):
            self.in_training = name == "training"
        self._lay_out()
        self._focus(PANES[name].focus)
        self.refresh_keys()

    def open_training(self, run: Path) -> None:
        self.query_one(Training).open(run)
        self.training_open = True

    @property
    def steering(self) -> bool:
        """Whether the line for words to the model is open."""
        return self._steering

    @steering.setter
    def steering(self, steering: bool) -> None:
        if steering != self._steering:
            self._steering = steering
            self._lay_out()

    def show_modules(self, modules: tuple[Module, ...]) -> None:
        self.query_one(Modules).show(modules)
        self.refresh_keys()

    def show_job(self) -> None:
        """Draw the current tab's job as it is now, and the tabs."""
        following = self.following
        tabs = [Tab(one.key, one.label) for one in following.jobs]
        training = self.in_training
        self.query_one(JobTabs).show([*tabs, Tab(TRAINING, "training")], TRAINING if training else following.key)
        job = following.current
        view = empty("") if job is None else job.view
        self.query_one(Episode).show(view)
        self.query_one(Result).show(view)
        self.query_one("#middle").border_title = "training" if training else "2 episode"
        if job is None or not job.running:
            self.steering = False
        self.refresh_keys()

    # Actions

    def can(self, action: Action) -> bool:
        """Whether an action makes sense now."""
        job, module = self.job, self.module
        match action.needs:
            case "module":
                return module is not None
            case "job":
                return job is not None
            case "running":
                return job is not None and job.running
            case "interrupted":
                return job is not None and job.interrupted
            case "kernels":
                return (job is not None and job.has_kernels) or (
                    module is not None and module.state.outcome in _WITH_KERNELS
                )
            case "applied":
                return (found := self.subject) is not None and found.state.applied
        return True

    def refresh_keys(self) -> None:
        try:
            own = [
                Key(shown_key(one.binding.key), one.binding.description, f"app.simulate_key('{one.binding.key}')")
                for one in self.active_bindings.values()
                if one.binding.show and one.node is not self and one.node is not self.app and one.enabled
            ]
            # A pane's own meaning of a key goes first where it has the keys.
            taken = {key.shown for key in own}
            ours = [key for key in footer_keys(self.work.preferences, self.can) if key.shown not in taken]
            self.query_one(Keys).show([*ours, *own])
        except NoMatches:
            pass  # the screen is being built or taken down

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """False for a key that somebody else wants: a line of text, or a pane that has a meaning of its own for it."""
        if action != "act" or self.focused is None:
            return True
        keys = [key.strip() for key in self.work.preferences.key(str(parameters[0])).split(",")]
        if isinstance(self.focused, Input) and any(key_to_character(key) for key in keys):
            return False
        panes = (node for node in self.focused.ancestors_with_self if isinstance(node, Widget) and node is not self)
        return not any(key in node._bindings.key_to_bindings for node in panes for key in keys)

    def action_act(self, name: str) -> None:
        """Do the action `name`: what only moves about is done at once, the rest in a flow.

        A second dialog of an action whose first is still open is not opened.
        """
        if name in self._open or not self.can(BY_NAME[name]):
            return
        if name in PANES and name != "training":
            self.go(name)
            self.show_job()
            return
        flow = importlib.import_module(f"kernel_assistant_tui.flows.{BY_NAME[name].flow}").__dict__[name]
        if inspect.iscoroutinefunction(flow):
            self.flow(lambda: flow(self), name if BY_NAME[name].asks else "")
        else:
            flow(self)

    def flow(self, work: Callable[[], Awaitable[Any]], name: str = "") -> None:
        """Run `work` beside everything else; what it fails with is said. With a name it is alone of that name."""

        async def guarded() -> None:
            self._open.add(name)
            try:
                await work()
            except KernelAssistantError as error:
                self.say_error(error)
            finally:
                self._open.discard(name)

        self.run_worker(guarded(), exit_on_error=True)

    # What happens

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(not is_wide(event.size), "-narrow")
        self._lay_out()

    def on_descendant_focus(self) -> None:
        self.refresh_keys()

    @on(Rows.Moved, "#module-rows")
    def module_moved(self) -> None:
        self.refresh_keys()

    @on(Rows.Chosen, "#module-rows")
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

    def _lay_out(self) -> None:
        """What is seen. Widgets are switched themselves: a class of the screen would have every style looked at."""
        wide, tiny = is_wide(self.app.size), is_tiny(self.app.size)
        shown = PANES[self._pane].widget
        for name in ("modules", "middle", "result", "devices"):
            self.query_one(f"#{name}").display = not tiny and (wide or name == shown)
        self.query_one("#panes").display = not tiny and (wide or shown != "devices")
        self.query_one(JobTabs).display = self.query_one(Keys).display = not tiny
        self.query_one("#tiny").display = tiny
        self.query_one(Training).display = self.in_training
        self.query_one(Episode).display = not self.in_training
        self.query_one("#steer").display = self.steering and not self.in_training

    def _focus(self, selector: str) -> None:
        try:
            found = self.query_one(selector)
        except NoMatches:
            return
        # Not `focus()`, which comes about after the next key.
        inside = [one for one in (found, *found.query("*")) if one.focusable]
        self.set_focus(inside[0] if inside else None)


def _pane(widget: W, title: str) -> W:
    widget.add_class("pane")
    widget.border_title = title
    return widget
