"""The help page: all actions with their keys and equivalent commands."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from kernel_assistant.config import user_file
from kernel_assistant_tui.actions import ACTIONS, shown_key
from kernel_assistant_tui.dialogs.dialog import Dialog
from kernel_assistant_tui.pane_keys import PANE_KEYS
from kernel_assistant_tui.preferences import Preferences
from kernel_assistant_tui.widgets.glyphs import clean
from kernel_assistant_tui.widgets.rows import fitted

#: Width in columns from which the commands are shown too.
_WITH_COMMANDS = 110


class FileLine(Widget):
    """A path in one line. If it is too long, its beginning is cut off."""

    DEFAULT_CSS = "FileLine { height: 1; color: $text-muted; }"

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = str(path)

    def render(self) -> Content:
        return Content(fitted(clean(self._path), self.content_size.width))


class HelpDialog(Dialog[None]):
    FULL = True

    def __init__(self, preferences: Preferences) -> None:
        super().__init__("Keys")
        self._preferences = preferences

    def body(self) -> Iterable[Widget]:
        yield VerticalScroll(Static(self._table()), classes="text")
        words = "Every command has --help. Keys and colours: table [tui] of this file."
        yield Static(words, classes="hint", markup=False)
        yield FileLine(user_file())

    def _table(self) -> Content:
        wide = self.app.size.width >= _WITH_COMMANDS
        lines = []
        for one in ACTIONS:
            key = Content.styled(f"{shown_key(self._preferences.key(one.name)):>6}  ", "bold $text-accent")
            command = Content.styled(f"  {one.command}" if one.command and wide else "", "$text 60%")
            lines.append(Content.assemble(key, f"{one.what:<58}" if wide else one.what, command))
        for own in PANE_KEYS:
            key = Content.styled(f"{shown_key(self._preferences.key(own.name)):>6}  ", "bold $text-accent")
            lines.append(Content.assemble(key, f"{own.pane}: {own.what}"))
        return Content("\n").join(lines)
