"""Copy the text of a pane to the clipboard by the terminal (OSC 52), which works over SSH too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_assistant_tui.widgets.episode import Episode
from kernel_assistant_tui.widgets.result import Result

if TYPE_CHECKING:
    from kernel_assistant_tui.screens.main import MainScreen


def copy(screen: MainScreen) -> None:
    """Copy the text selected with the mouse; else the text of the focused pane, or the chosen class."""
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
