"""The list of keys that work only inside one pane; `actions.py` has the keys that work everywhere."""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding

from kernel_assistant_tui.actions import BY_NAME, shown_key


@dataclass(frozen=True)
class PaneKey:
    """A key of one pane. `name` identifies it in the user's keymap; `label` is its word in the footer, `what` its
    description; `action` is a Textual action of the pane's widget. In the focused pane it takes precedence over an
    action with the same key."""

    pane: str
    name: str
    key: str
    label: str
    what: str
    action: str
    in_footer: bool = True


PANE_KEYS = (
    PaneKey("episode", "find", "slash", "find", "find in the transcript", "search"),
    PaneKey("episode", "find_next", "n", "next", "the next match", "find(1)", in_footer=False),
    PaneKey("episode", "find_previous", "N", "previous", "the match before", "find(-1)", in_footer=False),
    PaneKey("episode", "follow", "f", "follow", "go to the end and stay there", "follow"),
    PaneKey("episode", "conversation", "t", "conversation", "one of several conversations alone, then all", "only"),
    PaneKey("result", "best", "b", "best", "figures of the best candidate", "pane('best')"),
    PaneKey("result", "candidates", "c", "candidates", "all candidates", "pane('candidates')"),
    PaneKey("result", "source", "l", "source", "source of the chosen candidate, or the best", "pane('source')"),
    PaneKey("result", "diff", "d", "diff", "what apply would change", "pane('diff')"),
    PaneKey("result", "compare", "r", "compare", "two marked candidates side by side", "pane('compare')"),
    PaneKey("candidates", "choose", "enter", "source", "show the candidate's source", "select_cursor"),
    PaneKey("candidates", "mark", "space", "mark", "mark a candidate; two are compared", "mark"),
    PaneKey("candidates", "sort", "z", "sort", "sort by the next column", "next_order"),
    PaneKey("training", "pause", "z", "pause, go on", "pause the run, or let it go on", "pause"),
    PaneKey("training", "stop", "j", "stop", "end the run: it saves (twice, to be sure)", "stop"),
    PaneKey("training", "stage", "t", "stage", "curves of the next stage", "stage"),
)

#: Name → default key, of all actions and pane keys.
DEFAULT_KEYS = {**{name: action.key for name, action in BY_NAME.items()}, **{one.name: one.key for one in PANE_KEYS}}


def bindings_of(pane: str) -> list[Binding]:
    """Return the bindings of a pane. Their ids are the names of the keys, to which the user's keymap refers."""
    return [
        Binding(one.key, one.action, one.label, id=one.name, show=one.in_footer)
        for one in PANE_KEYS
        if one.pane == pane
    ]


def pane_table() -> str:
    """Returns the Markdown table of all keys of panes for docs/tui.md."""
    rows = (f"| {one.pane} | `{shown_key(one.key)}` | `{one.name}` | {one.what} |" for one in PANE_KEYS)
    return "\n".join(["| Pane | Key | Name | What |", "|---|---|---|---|", *rows]) + "\n"
