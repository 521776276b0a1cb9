"""Textual's bindings and the footer's keys, out of the one list of actions."""

from __future__ import annotations

from collections.abc import Callable, Collection

from textual.binding import Binding

from kernel_assistant_tui.actions import ACTIONS, Action, shown_key
from kernel_assistant_tui.preferences import Preferences
from kernel_assistant_tui.widgets.footer import Key

#: Of two with one label (the tab before, the tab behind) the footer writes one entry.
_TOGETHER = {"previous_tab": "next_tab"}


def bindings() -> list[Binding]:
    """By name, so that the user's keymap finds them.

    With priority: what an action does to the focus is done before the next key is looked at. The screen refuses them
    where a line of text or a pane's own binding wants the key (`check_action`).
    """
    return [
        Binding(one.key, f"act('{one.name}')", one.label, id=one.name, show=False, priority=True) for one in ACTIONS
    ]


def footer_keys(
    preferences: Preferences, enabled: Callable[[Action], bool], left_out: Collection[str], pane: str
) -> list[Key]:
    """Of the actions that make sense now, in order, without those that are `left_out`. `pane` has the keys."""
    hidden = {*_TOGETHER.values(), *left_out}
    return [_key(one, preferences, pane) for one in ACTIONS if one.name not in hidden and enabled(one)]


def _key(action: Action, preferences: Preferences, pane: str) -> Key:
    shown = shown_key(preferences.key(action.name))
    if action.name in _TOGETHER:
        shown += " " + shown_key(preferences.key(_TOGETHER[action.name]))
    return Key(shown, action.label, f"screen.act('{action.name}')", action.name == pane)
