"""A class that says nowhere how it is called: a draft to mend, or a program to record its inputs from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from textual.widget import Widget
from textual.widgets import Static, TextArea

from kernel_assistant.source.draft import Draft
from kernel_assistant_tui.project.module import Module
from kernel_assistant_tui.screens.dialog import Choice, Dialog


@dataclass(frozen=True)
class Answer:
    """`how` is "draft", with the text as it was mended, or "record"."""

    how: str
    text: str = ""


class InputsDialog(Dialog[Answer]):
    FULL = True

    def __init__(self, module: Module, drafted: Draft, why: str) -> None:
        super().__init__(
            why or f"Inputs of {module.name}",
            Choice("f2", "write it and go on", Answer("draft")),
            Choice("f3", "record them from a program", Answer("record")),
        )
        self._module = module
        self._draft = drafted

    def body(self) -> Iterable[Widget]:
        words = f"Mend this draft ({self._draft.origin}); it is written at the end of {self._module.where}."
        yield Static(words, classes="hint", markup=False)
        yield TextArea(self._draft.text, id="draft", classes="text", tab_behavior="focus", show_line_numbers=False)

    def answer(self, value: Answer) -> None:
        text = self.query_one("#draft", TextArea).text
        self.dismiss(Answer("draft", text) if value.how == "draft" else value)
