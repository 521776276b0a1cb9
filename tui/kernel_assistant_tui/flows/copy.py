"""Copy what the pane shows, through the terminal (OSC 52): over SSH too, where the terminal allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_assistant_tui.widgets.episode import Episode
from kernel_assistant_tui.widgets.result import Result

if TYPE_CHECKING:
    from kernel_assistant_tui.screens.main import MainScreen


def copy(screen: MainScreen) -> None:
    """Text that is marked with the mouse; else what the pane with the keys says, or the chosen class."""
    marked = screen.get_selected_text()
    if marked:
        _copy(screen, marked, "what is marked")
    elif screen.pane == "episode" and (transcript := screen.query_one(Episode).text):
        _copy(screen, transcript, "the transcript")
    elif screen.pane == "result" and (shown := screen.query_one(Result).text):
        _copy(screen, shown, "what the result shows")
    elif screen.module is not None:
        _copy(screen, screen.module.spec, screen.module.spec)


def _copy(screen: MainScreen, text: str, what: str) -> None:
    screen.app.copy_to_clipboard(text)
    screen.say(f"copied {what}")
