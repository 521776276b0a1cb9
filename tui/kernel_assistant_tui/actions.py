"""The list of all actions. The footer, the command palette, the help, the keymap and the table in docs/tui.md are
made from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Action:
    """An action of the user. `label` is its word in the footer, `what` its description in the help, `command` its
    equivalent on the command line. `needs` says when it is possible: "module" (a class is chosen), "job" (a tab shows a
    job), "running", "interrupted", "kernels" (a job has kernels), "unconfirmed" (a job's gain is not known), "applied",
    "tabs" (other tabs are open) or "" for always."""

    name: str
    key: str
    label: str
    what: str
    command: str = ""
    needs: str = ""

    @property
    def flow(self) -> str:
        """The name of the module in flows/ that implements the action."""
        return next((flow for flow, names in _FLOWS.items() if self.name in names), self.name)

    @property
    def asks(self) -> bool:
        """Whether the action opens a dialog."""
        return self.name not in ("start", "cancel", "resume", "verify", "confirm", "copy")


_FLOWS = {
    "run": ("start", "options", "cancel", "steer", "resume"),
    "kernels": ("verify", "confirm", "apply", "undo", "export"),
    "view": (
        "search",
        "previous_tab",
        "next_tab",
        "close_tab",
        "palette",
        "help",
        "quit",
        "training",
        "history",
        "copy",
    ),
    "inputs": ("inputs", "scan"),
}


ACTIONS = (
    Action("start", "s", "start", "optimize the chosen class, by the settings", "optimize FILE:CLASS", "module"),
    Action("options", "o", "options", "optimize with options of its own", "optimize --budget 2m", "module"),
    Action("cancel", "x", "cancel", "stop the job and keep what it found", "cancel JOB", "running"),
    Action("steer", "m", "message", "tell the model that works on the job something", "say JOB WORDS", "running"),
    Action("resume", "g", "go on", "go on with an interrupted job", "attach JOB", "interrupted"),
    Action("apply", "a", "apply", "write the kernels into the file, after a look at the diff", "apply JOB", "kernels"),
    Action("undo", "u", "undo", "take applied kernels back, after a look at the diff", "undo FILE", "applied"),
    Action("verify", "v", "verify", "verify and time the kernels again", "check FILE", "kernels"),
    Action("confirm", "f", "in full", "measure in full what a job left open", "confirm JOB", "unconfirmed"),
    Action("export", "w", "export", "write the kernels in a form of their own", "export JOB DIR --to FORM", "kernels"),
    Action("edit", "e", "editor", "open the class in $VISUAL or $EDITOR", "", "module"),
    Action("copy", "y", "copy", "copy what the pane shows: class, transcript, source", "show JOB --source"),
    Action("inputs", "i", "inputs", "draft or record the inputs of the chosen class", "draft FILE:CLASS", "module"),
    Action("scan", "p", "scan", "run a program and rank the classes by what they cost", "scan -- COMMAND"),
    Action("search", "slash", "search", "search the modules"),
    Action("modules", "1", "modules", "show the modules"),
    Action("episode", "2", "episode", "show the running episode"),
    Action("result", "3", "result", "show the best result"),
    Action("devices", "4", "devices", "show the devices", "doctor"),
    Action("training", "5", "training", "show a training run"),
    Action("previous_tab", "left_square_bracket", "tab", "the tab before", "", "tabs"),
    Action("next_tab", "right_square_bracket", "tab", "the tab behind", "", "tabs"),
    Action("close_tab", "K", "close tab", "close the tab; its job goes on", "", "job"),
    Action("history", "h", "history", "everything that was done, with search", "history"),
    Action("settings", "comma", "settings", "what is set, where that comes from, and changing it", "config list"),
    Action("palette", "ctrl+p", "palette", "find an action by its name"),
    Action("help", "question_mark", "help", "this list", "--help"),
    Action("quit", "q", "quit", "leave; running jobs may go on"),
)

BY_NAME = {action.name: action for action in ACTIONS}

_SHOWN = {
    "slash": "/",
    "comma": ",",
    "question_mark": "?",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
}


def shown_key(key: str) -> str:
    """Returns a key as users read it, such as `^p` for Textual's `ctrl+p`. `key` may list several keys, separated by
    commas; only the first one is shown."""
    return "+".join(_SHOWN.get(part, part) for part in key.split(",", maxsplit=1)[0].split("+")).replace("ctrl+", "^")


def table() -> str:
    """Returns the Markdown table of all actions for docs/tui.md."""
    rows = (
        f"| `{shown_key(one.key)}` | `{one.name}` | {one.what} | {f'`{one.command}`' if one.command else ''} |"
        for one in ACTIONS
    )
    return "\n".join(["| Key | Name | What | Command |", "|---|---|---|---|", *rows]) + "\n"
