"""What an action is about, whether it makes sense now, and doing it. What it does is in flows/."""

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
from textual.keys import key_to_character
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import Worker

from kernel_assistant.errors import KernelAssistantError, UsageError
from kernel_assistant.session.scan_process import ScanProcess
from kernel_assistant_tui.actions import BY_NAME, Action, shown_key
from kernel_assistant_tui.following import Following
from kernel_assistant_tui.jobs import OpenJob
from kernel_assistant_tui.keys import bindings, footer_keys
from kernel_assistant_tui.project.module import Module
from kernel_assistant_tui.screens.panes import NOT_IN_NARROW, PANES, SIDE_BY_SIDE, is_wide
from kernel_assistant_tui.screens.possible import Situation, why_not
from kernel_assistant_tui.widgets.footer import Key, Keys
from kernel_assistant_tui.widgets.glyphs import clean
from kernel_assistant_tui.widgets.modules import Modules

if TYPE_CHECKING:
    from kernel_assistant_tui.app import KernelAssistant

#: For a key to come up from a pane to the application.
_SETTLE_S = 2.0
#: What is said stands for so long, and is not said again meanwhile.
_SAID_S = 5.0


class ActingScreen(Screen[None]):
    """Flows use what is public here."""

    BINDINGS: ClassVar[list[BindingType]] = list(bindings())

    following: Following

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._pane = "modules"
        self._open: set[str] = set()
        self._said, self._said_at = "", float("-inf")
        #: The training run is shown, and no job.
        self.in_training = False
        #: A program of the user's that runs under the recorder.
        self.scanning: ScanProcess | None = None

    @property
    def work(self) -> KernelAssistant:
        """The application, which has the settings, the project and the host."""
        return cast("KernelAssistant", self.app)

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

    def say(self, words: str, *, severity: str = "information") -> None:
        words = "\n".join(clean(line) for line in words.splitlines())
        if words == self._said and monotonic() - self._said_at < _SAID_S:
            return
        self._said, self._said_at = words, monotonic()
        self.notify(words, severity=severity, markup=False, timeout=2 * _SAID_S if severity == "error" else _SAID_S)  # type: ignore[arg-type]

    def say_error(self, error: KernelAssistantError) -> None:
        self.say(f"{error.cause}\n{error.next_step}" if error.next_step else error.cause, severity="error")

    @property
    def alive(self) -> bool:
        """False from the moment on that the application is ending."""
        return self.app.is_running and self.is_attached

    def show_pane(self, name: str) -> None:
        """Show a pane, give it the keys, and draw the job that is shown."""
        raise NotImplementedError

    def why_not(self, action: Action) -> str:
        """Why an action makes no sense now, "" for one that does."""
        others = any(one.key != self.following.key or self.in_training for one in self.following.jobs)
        return why_not(action, Situation(self.module, self.subject, self.job, self.scanning is not None, others))

    def can(self, action: Action) -> bool:
        return not self.why_not(action)

    def refresh_keys(self) -> None:
        try:
            own = [
                Key(shown_key(one.binding.key), one.binding.description, f"app.simulate_key('{one.binding.key}')")
                for one in self.active_bindings.values()
                if one.binding.show and one.node is not self and one.node is not self.app and one.enabled
            ]
            # A pane's own meaning of a key goes first where it has the keys.
            taken = {key.shown for key in own}
            wide = is_wide(self.app.size)
            left_out = SIDE_BY_SIDE if wide else NOT_IN_NARROW
            keys = footer_keys(self.work.preferences, self.can, left_out, "" if wide else self.pane)
            ours = [key for key in keys if key.shown not in taken]
            self.query_one(Keys).show([*own, *ours])
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
        """Do the action `name`: what only moves about is done at once, the rest in a flow; or say why not.

        A second dialog of an action whose first is still open is not opened.
        """
        if name in self._open:
            return
        if why := self.why_not(BY_NAME[name]):
            self.say(why, severity="warning")
            return
        if name in PANES and name != "training":
            self.show_pane(name)
            return
        flow = importlib.import_module(f"kernel_assistant_tui.flows.{BY_NAME[name].flow}").__dict__[name]
        if inspect.iscoroutinefunction(flow):
            self.flow(lambda: self._settled(flow), name if BY_NAME[name].asks else "")
        else:
            flow(self)

    async def _settled(self, flow: Callable[[ActingScreen], Awaitable[None]]) -> None:
        """Keys before this one may still be on their way up from a pane, and say what the action is about."""
        for node in () if self.focused is None else self.focused.ancestors_with_self:
            passed = asyncio.Event()
            if node.call_later(passed.set):
                with suppress(TimeoutError):  # a pane that is taken down meanwhile never comes to it
                    await asyncio.wait_for(passed.wait(), _SETTLE_S)
        await flow(self)

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

        # The function and not its coroutine, which nobody would wait for where the screen is being taken down.
        worker: Worker[None] = self.run_worker(guarded)
        del worker
