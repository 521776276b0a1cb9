"""Ask for the inputs of a class without any: the user edits a draft, or records them from a program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from textual.widget import Widget
from textual.widgets import Static, TextArea

from kernel_assistant.source.draft import Draft
from kernel_assistant_tui.dialogs.dialog import Choice, Dialog
from kernel_assistant_tui.project.module import Module


@dataclass(frozen=True)
class InputsAnswer:
    """`how` is "draft", with the edited text, or "record"."""

    how: str
    text: str = ""


class InputsDialog(Dialog[InputsAnswer]):
    FULL = True

    def __init__(self, module: Module, drafted: Draft, why: str) -> None:
        super().__init__(
            why or f"Inputs of {module.name}",
            Choice("f2", "write it and go on", InputsAnswer("draft")),
            Choice("f3", "record them from a program", InputsAnswer("record")),
        )
        self._module = module
        self._draft = drafted

    def body(self) -> Iterable[Widget]:
        words = (
            f"Mend this draft ({self._draft.origin}); it is written above {self._module.name} in {self._module.where}."
        )
        yield Static(words, classes="hint", markup=False)
        yield TextArea(self._draft.text, id="draft", classes="text", tab_behavior="focus", show_line_numbers=False)

    def answer(self, value: InputsAnswer) -> None:
        text = self.query_one("#draft", TextArea).text
        self.dismiss(InputsAnswer("draft", text) if value.how == "draft" else value)
