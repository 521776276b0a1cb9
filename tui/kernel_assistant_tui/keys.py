"""Makes Textual's bindings and the keys of the footer from the list of actions."""

from __future__ import annotations

from collections.abc import Callable, Collection

from textual.binding import Binding

from kernel_assistant_tui.actions import ACTIONS, Action, shown_key
from kernel_assistant_tui.preferences import Preferences
from kernel_assistant_tui.widgets.footer import Key

#: Pairs of actions that share one entry in the footer.
_TOGETHER = {"previous_tab": "next_tab"}


def bindings() -> list[Binding]:
    """Returns Textual's bindings of all actions. The id of a binding is the action's name, to which the user's keymap
    refers.

    The bindings have priority, so that an action changes the focus before the next key is handled. The screen disables
    a binding if an input line or the focused pane uses its key (`check_action`).
    """
    return [
        Binding(one.key, f"act('{one.name}')", one.label, id=one.name, show=False, priority=True) for one in ACTIONS
    ]


def footer_keys(
    preferences: Preferences, enabled: Callable[[Action], bool], left_out: Collection[str], pane: str
) -> list[Key]:
    """Returns the footer entries of the actions for which `enabled` is True, in order, without the actions in
    `left_out`. The entry of the pane with the focus (`pane`) is highlighted."""
    hidden = {*_TOGETHER.values(), *left_out}
    return [_key(one, preferences, pane) for one in ACTIONS if one.name not in hidden and enabled(one)]


def _key(action: Action, preferences: Preferences, pane: str) -> Key:
    shown = shown_key(preferences.key(action.name))
    if action.name in _TOGETHER:
        shown += " " + shown_key(preferences.key(_TOGETHER[action.name]))
    return Key(shown, action.label, f"screen.act('{action.name}')", action.name == pane)
