"""Show the diff of a change to the user's file, and ask whether to make it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from kernel_assistant_tui.dialogs.dialog import Choice, Dialog
from kernel_assistant_tui.widgets.glyphs import clean

_STYLES = {"+": "$text-success", "-": "$text-error", "@": "$text-accent"}


class DiffDialog(Dialog[bool]):
    """Returns True if the user wants the change."""

    FULL = True

    def __init__(self, title: str, diff: str, what: str, warnings: Sequence[str], *, yes: tuple[str, str]) -> None:
        super().__init__(title, Choice(*yes, True))
        self._diff = diff
        self._what = what
        self._warnings = warnings

    def body(self) -> Iterable[Widget]:
        yield Static(self._what, classes="hint", markup=False)
        for warning in self._warnings:
            yield Static(warning, classes="warn", markup=False)
        yield VerticalScroll(Static(coloured(self._diff or "no file of yours changes"), id="diff"), classes="text")


def coloured(diff: str) -> Content:
    """Colour a unified diff line by line."""
    lines = [Content.styled(clean(line), _STYLES.get(line[:1], "$text")) for line in diff.splitlines()]
    return Content("\n").join(lines)
