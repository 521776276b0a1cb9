"""Decides to which class or job an action applies and whether it is possible now, and runs it. The actions are in
flows/."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.binding import BindingType
from textual.css.query import NoMatches
from textual.events import Key as KeyEvent
from textual.keys import key_to_character
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import Worker

from kernel_assistant.errors import KernelAssistantError, UsageError
from kernel_assistant.session.reporting.class_state import ClassState
from kernel_assistant.session.scanning.scan_process import ScanProcess
from kernel_assistant_tui.actions import BY_NAME, Action, shown_key
from kernel_assistant_tui.following import JobFollower
from kernel_assistant_tui.jobs import OpenJob
from kernel_assistant_tui.keys import bindings, footer_keys
from kernel_assistant_tui.project.module import Module
from kernel_assistant_tui.screens.action_context import ActionContext, why_not
from kernel_assistant_tui.screens.panes import NOT_IN_NARROW, PANES, SIDE_BY_SIDE, is_wide
from kernel_assistant_tui.widgets.footer import Key, Keys
from kernel_assistant_tui.widgets.glyphs import clean
from kernel_assistant_tui.widgets.modules import Modules

if TYPE_CHECKING:
    from kernel_assistant_tui.app import KernelAssistant

#: Seconds to wait for a key to pass from a pane to the application.
_SETTLE_S = 2.0
#: Seconds that a message is shown; the same message is not shown again meanwhile.
_MESSAGE_S = 5.0
#: Actions after which people type at once, and the pause (seconds) after which typed keys count again.
TYPED = frozenset({"steer", "options", "inputs", "export"})
PAUSE_S = 1.5


class ActingScreen(Screen[None]):
    """The base class of the main screen. The flows use its public members."""

    BINDINGS: ClassVar[list[BindingType]] = list(bindings())

    following: JobFollower

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._pane = "modules"
        self._open: set[str] = set()
        self._last_message, self._last_message_at = "", float("-inf")
        #: Time until which typed keys are dropped, and the number of those dropped.
        self._deaf_until, self._dropped = float("-inf"), 0
        #: Whether the training run is shown instead of a job.
        self.in_training = False
        #: The user's program that runs under the recorder.
        self.scanning: ScanProcess | None = None

    @property
    def work(self) -> KernelAssistant:
        """The application, which has the settings, the project and the host."""
        return cast("KernelAssistant", self.app)

    @property
    def module(self) -> Module | None:
        """The chosen class, whichever pane has the focus."""
        return self.query_one(Modules).chosen

    @property
    def job(self) -> OpenJob | None:
        """The job whose tab is shown."""
        return self.following.current

    @property
    def pane(self) -> str:
        """The focused pane, else the pane that was shown last."""
        inside = {node.id for node in self.focused.ancestors_with_self} if self.focused is not None else set()
        names = [name for name, pane in PANES.items() if inside & {pane.widget, name}]
        return self._pane if not names or self._pane in names else names[0]

    @property
    def job_number(self) -> str:
        """The number of the job to which an action applies: the current job, or the last job of the chosen class if
        the list of modules has the focus. Raises UsageError if there is none."""
        return self._number(lambda state: state.job)

    @property
    def job_to_apply(self) -> str:
        """The number of the job that `apply` uses: the current job or, if the list of modules has the focus, the chosen
        class's last job with a gain. Raises UsageError if there is none."""
        return self._number(lambda state: state.offer or state.job)

    def _number(self, of_class: Callable[[ClassState], str]) -> str:
        module, job = self.module, self.job
        if module is not None and module.state.job and (self.pane == "modules" or job is None):
            return of_class(module.state)
        if job is None:
            raise UsageError("no job is shown and the class has none", "start one")
        if not job.number:
            raise UsageError(f"the result of job {job.key} is not here yet", "wait until it has ended")
        return job.number

    @property
    def subject(self) -> Module | None:
        """The class to which an action applies: the class of the current job, or the chosen class (see
        `job_number`)."""
        job, chosen = self.job, self.module
        if job is None or self.pane == "modules":
            return chosen
        return next(
            (one for one in self.query_one(Modules).all if one.key == (job.selection.path, job.selection.class_name)),
            chosen,
        )

    def say(self, words: str, *, severity: str = "information") -> None:
        words = "\n".join(clean(line) for line in words.splitlines())
        if words == self._last_message and monotonic() - self._last_message_at < _MESSAGE_S:
            return
        self._last_message, self._last_message_at = words, monotonic()
        timeout = 2 * _MESSAGE_S if severity == "error" else _MESSAGE_S
        self.notify(words, severity=severity, markup=False, timeout=timeout)  # type: ignore[arg-type]

    def say_error(self, error: KernelAssistantError) -> None:
        self.say(f"{error.cause}\n{error.next_step}" if error.next_step else error.cause, severity="error")

    @property
    def alive(self) -> bool:
        """Whether the screen is in use: False once the application is ending."""
        return self.app.is_running and self.is_attached

    def show_pane(self, name: str) -> None:
        """Show a pane, focus it, and draw the current job."""
        raise NotImplementedError

    def why_not(self, action: Action) -> str:
        """Returns a message that says why an action is not possible now; "" if it is possible."""
        others = any(one.key != self.following.key or self.in_training for one in self.following.jobs)
        return why_not(action, ActionContext(self.module, self.subject, self.job, self.scanning is not None, others))

    def can(self, action: Action) -> bool:
        return not self.why_not(action)

    def refresh_keys(self) -> None:
        try:
            own = [
                Key(shown_key(one.binding.key), one.binding.description, f"app.simulate_key('{one.binding.key}')")
                for one in self.active_bindings.values()
                if one.binding.show and one.node is not self and one.node is not self.app and one.enabled
            ]
            # The keys of the focused pane take precedence over those of actions.
            taken = {key.shown for key in own}
            wide = is_wide(self.app.size)
            left_out = SIDE_BY_SIDE if wide else NOT_IN_NARROW
            keys = footer_keys(self.work.preferences, self.can, left_out, "" if wide else self.pane)
            ours = [key for key in keys if key.shown not in taken]
            self.query_one(Keys).show([*own, *ours])
        except NoMatches:
            pass  # the screen is being built or taken down

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a binding is active: not if the focused input line or pane uses its key."""
        if action != "act" or self.focused is None:
            return True
        keys = [key.strip() for key in self.work.preferences.key(str(parameters[0])).split(",")]
        if isinstance(self.focused, Input) and any(key_to_character(key) for key in keys):
            return False
        panes = (node for node in self.focused.ancestors_with_self if isinstance(node, Widget) and node is not self)
        return not any(key in node._bindings.key_to_bindings for node in panes for key in keys)

    def action_act(self, name: str) -> None:
        """Run the action `name`, or show why it is not possible. Plain functions run at once, coroutines as a worker.

        Does nothing while the dialog of the same action is open.
        """
        if name in self._open:
            return
        if why := self.why_not(BY_NAME[name]):
            self.say(why, severity="warning")
            if name in TYPED:
                self._deaf_until, self._dropped = monotonic() + PAUSE_S, 0
            return
        if name in PANES and name != "training":
            self.show_pane(name)
            return
        flow = importlib.import_module(f"kernel_assistant_tui.flows.{BY_NAME[name].flow}").__dict__[name]
        if inspect.iscoroutinefunction(flow):
            self.flow(lambda: self._settled(flow), name if BY_NAME[name].asks else "")
        else:
            flow(self)

    def swallows(self, event: KeyEvent) -> bool:
        """Return whether to drop a key. If an action that opens a text input was refused, the user may type on
        without noticing, and each letter would run another action. So keys are dropped until the user pauses, or
        presses Enter or Escape.
        """
        if monotonic() > self._deaf_until or not (event.is_printable or event.key in ("enter", "escape")):
            return False
        going = event.is_printable
        self._deaf_until = monotonic() + PAUSE_S if going else float("-inf")
        self._dropped += going
        if going and self._dropped > 1:  # one repeated key is not a sentence
            self.say("what is typed now is dropped: nothing is open that takes it", severity="warning")
        return True

    async def _settled(self, flow: Callable[[ActingScreen], Awaitable[None]]) -> None:
        """Runs `flow(self)` after the focused widgets have handled all earlier keys, because these keys may still
        change the class or job to which the action applies."""
        for node in () if self.focused is None else self.focused.ancestors_with_self:
            passed = asyncio.Event()
            if node.call_later(passed.set):
                with suppress(TimeoutError):  # a widget that is removed meanwhile never answers
                    await asyncio.wait_for(passed.wait(), _SETTLE_S)
        await flow(self)

    def flow(self, work: Callable[[], Awaitable[Any]], name: str = "") -> None:
        """Runs `work` as a Textual worker and shows the error that it raises. Meanwhile `action_act` ignores the action
        `name`."""

        async def guarded() -> None:
            self._open.add(name)
            try:
                await work()
            except KernelAssistantError as error:
                self.say_error(error)
            finally:
                self._open.discard(name)

        # Pass the function: a coroutine object would never be awaited if the screen is being removed.
        worker: Worker[None] = self.run_worker(guarded)
        del worker
