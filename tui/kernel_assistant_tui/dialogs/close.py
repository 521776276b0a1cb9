"""Asks what to do with running jobs on exit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.widget import Widget
from textual.widgets import Static

from kernel_assistant_tui.dialogs.dialog import Choice, Dialog


class CloseDialog(Dialog[str]):
    """Answers "leave", "cancel" or "stay"."""

    def __init__(self, running: Sequence[str]) -> None:
        title = "A job is running" if len(running) == 1 else f"{len(running)} jobs are running"
        super().__init__(
            title,
            Choice("l", "leave it to the host", "leave"),
            Choice("c", "cancel it", "cancel"),
            Choice("s", "stay", "stay"),
        )
        self._labels = running

    def body(self) -> Iterable[Widget]:
        yield Static("\n".join(self._labels), classes="said", markup=False)
        words = "In the host it goes on; this terminal or another finds it again: kernel-assistant tui, or attach."
        yield Static(words, classes="hint", markup=False)
