"""The dialog that asks for the options of one job."""

from __future__ import annotations

from collections.abc import Iterable

from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Static

from kernel_assistant.config import NUMERICS, POLICIES, TARGETS, Settings, check_value
from kernel_assistant.errors import UsageError
from kernel_assistant_tui.dialogs.dialog import Choice, Dialog
from kernel_assistant_tui.project.module import Module
from kernel_assistant_tui.widgets.cycle import Cycle


class StartDialog(Dialog[dict[str, object]]):
    """Asks for the options of a job and returns those that the user has changed, as flags for `resolve`."""

    def __init__(self, module: Module, settings: Settings) -> None:
        super().__init__(f"Optimize {module.name} ({module.where}:{module.line})", Choice("s", "start", {}))
        self._now: dict[str, str] = {
            "target": settings.target,
            "budget": f"{settings.budget:g}s",
            "policy": settings.policy,
            "numerics": settings.numerics,
        }

    def body(self) -> Iterable[Widget]:
        labels = {
            "target": "device",
            "budget": "time of the search",
            "policy": "who writes kernels",
            "numerics": "error policy",
        }
        known = {"target": TARGETS, "policy": POLICIES, "numerics": NUMERICS}
        for name, words in labels.items():
            field: Widget
            if name in known:
                field = Cycle(known[name], self._now[name], id=f"start-{name}")
            else:
                field = Input(self._now[name], id=f"start-{name}", compact=True)
            yield Horizontal(Static(words), field, classes="field")
        hint = "Left and right change a choice, tab goes on, enter starts.\n"
        hint += "Confirming adds at most as long again and ten seconds."
        yield Static(hint, classes="hint")
        yield Static("", classes="warn", id="start-wrong", markup=False)

    def answer(self, value: dict[str, object]) -> None:
        chosen = {name: self._value(name) for name in self._now}
        try:
            for name, text in chosen.items():
                check_value(name, text)
        except UsageError as error:
            self.query_one("#start-wrong", Static).update(error.cause)
            self.query_one("#start-budget", Input).focus()
            return
        self.dismiss({name: text for name, text in chosen.items() if text != self._now[name]})

    def _value(self, name: str) -> str:
        widget = self.query_one(f"#start-{name}")
        return str(widget.value) if isinstance(widget, (Input, Cycle)) else ""
