"""The application: settings, themes, keys, and the main screen. The actions are implemented in flows/."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual.app import App, ScreenStackError, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.css.query import NoMatches
from textual.events import Event
from textual.events import Key as KeyEvent
from textual.screen import Screen
from textual.scrollbar import ScrollBar
from textual.theme import ThemeProvider
from textual.worker import WorkerFailed

from kernel_assistant.config import Settings, resolve, user_file
from kernel_assistant.errors import UsageError
from kernel_assistant.session.client import Client
from kernel_assistant.session.settings_file import set_in_file
from kernel_assistant_tui.actions import ACTIONS, shown_key
from kernel_assistant_tui.preferences import Preferences, read_preferences
from kernel_assistant_tui.project.project import Project
from kernel_assistant_tui.screens.acting import ActingScreen
from kernel_assistant_tui.screens.main import MainScreen
from kernel_assistant_tui.themes import OWN, AsciiBars, draws_boxes


class KernelAssistant(App[int]):
    """The Textual application. `root` is a folder or a file; `flags` are the settings of the command line, as
    `resolve` takes them."""

    TITLE = "kernel-assistant"
    CSS_PATH = "app.tcss"
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q", "act('quit')", show=False, priority=True)]

    def __init__(self, root: Path, flags: dict[str, object] | None = None) -> None:
        self.preferences = read_preferences()
        super().__init__()
        self.root = root.absolute()
        self.flags = dict(flags or {})
        self.settings, self.warnings = resolve(self.root, self.flags)
        self.project = Project(self.root, self.settings)
        self.client = Client(self.settings)
        # No animations: they are slow over slow connections, and an idle terminal should use no CPU.
        self.animation_level = "none"
        for theme in OWN:
            self.register_theme(theme)
        self.theme = self.preferences.theme

    def on_mount(self) -> None:
        self.use(self.preferences)
        if not draws_boxes():
            ScrollBar.renderer = AsciiBars
            self.add_class("-ascii")
        self.push_screen(MainScreen(self.root, id="main"))

    async def on_event(self, event: Event) -> None:
        if isinstance(event, KeyEvent) and isinstance(self.screen, ActingScreen) and self.screen.swallows(event):
            return
        await super().on_event(event)

    def use(self, preferences: Preferences) -> None:
        """Sets the keys and the theme of the application from `preferences`."""
        self.preferences = preferences
        self.theme = preferences.theme
        self.set_keymap(dict(preferences.keys))

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandPalette(placeholder="find an action"))

    def action_change_theme(self) -> None:
        """Open a searchable list of themes. The chosen theme is saved in the user's file."""
        self.push_screen(CommandPalette(providers=[KeptThemes], placeholder="theme"))

    def keep_theme(self, theme: str) -> None:
        """Use a theme now and save it for later sessions."""
        self.theme = theme
        try:
            set_in_file(user_file(), "theme", theme, "tui")
            self.preferences = read_preferences()
        except UsageError as error:
            self.main.say_error(error)

    def settings_for(self, path: Path, flags: dict[str, object] | None = None) -> Settings:
        """Returns the settings that apply to a file of the project now; `flags` override them. Raises UsageError for an
        invalid setting."""
        return resolve(path, {**self.flags, **(flags or {})})[0]

    def _handle_exception(self, error: Exception) -> None:
        """Handles uncaught exceptions in place of Textual. Ignores errors of widgets that are removed already: when the
        application ends, results of threads may arrive too late."""
        cause = error.error if isinstance(error, WorkerFailed) else error
        if self.is_running or not isinstance(cause, NoMatches | ScreenStackError):
            super()._handle_exception(error)

    @property
    def main(self) -> MainScreen:
        main_screen = next(screen for screen in self.screen_stack if isinstance(screen, MainScreen))
        assert isinstance(main_screen, MainScreen)
        return main_screen

    async def action_act(self, name: str) -> None:
        """Run an action whose key works on every screen."""
        self.main.action_act(name)

    def action_help_quit(self) -> None:
        """Handle Ctrl+C: show the key that quits."""
        self.notify(f"{shown_key(self.preferences.key('quit'))} leaves, ^q from everywhere", markup=False)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield the entries of the palette: our actions, and the choice of a theme."""
        if isinstance(screen, MainScreen):
            for one in ACTIONS:
                if one.name == "palette":
                    continue
                words = f"{one.what} ({one.command})" if one.command else one.what
                words = f"not now: {why}" if (why := screen.why_not(one)) else words
                yield SystemCommand(one.label, words, lambda name=one.name: screen.action_act(name))
        yield SystemCommand("theme", "choose colours", self.action_change_theme)


class KeptThemes(ThemeProvider):
    """The list of themes; the chosen one is saved in the user's file."""

    @property
    def commands(self) -> list[tuple[str, Callable[[], None]]]:
        app = self.app
        assert isinstance(app, KernelAssistant)
        return [(name, partial(app.keep_theme, name)) for name in sorted(app.available_themes)]
