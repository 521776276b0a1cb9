"""Small dialogs: one line of text, the diff of a change, inputs of a class, the format of an export, and what to do
with running jobs on exit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static, TextArea

from kernel_assistant.apply import KINDS
from kernel_assistant.source.draft import Draft
from kernel_assistant_tui.dialogs.dialog import Choice, Dialog
from kernel_assistant_tui.project.module import Module
from kernel_assistant_tui.widgets.cycle import Cycle
from kernel_assistant_tui.widgets.glyphs import clean

_STYLES = {"+": "$text-success", "-": "$text-error", "@": "$text-accent"}


class LineDialog(Dialog[str]):
    """Asks for one line of text and returns it without spaces around it. `yes` is the key and the label of its
    button."""

    def __init__(self, title: str, suggested: str, hint: str, *, yes: tuple[str, str], placeholder: str = "") -> None:
        super().__init__(title, Choice(*yes, ""))
        self._suggested, self._hint, self._placeholder = suggested, hint, placeholder

    def body(self) -> Iterable[Widget]:
        yield Input(self._suggested, placeholder=self._placeholder, id="line", compact=True)
        yield Static(self._hint, classes="hint", markup=False)

    def answer(self, value: str) -> None:
        self.dismiss(self.query_one("#line", Input).value.strip())


class DiffDialog(Dialog[bool]):
    """Shows a diff and returns True if the user wants the change."""

    FULL = True

    def __init__(self, title: str, diff: str, what: str, warnings: Sequence[str], *, yes: tuple[str, str]) -> None:
        super().__init__(title, Choice(*yes, True))
        self._diff = diff
        self._what = what
        self._warnings = warnings

    def body(self) -> Iterable[Widget]:
        yield Static(self._what, classes="hint", markup=False)
        for warning in self._warnings:
            yield Static(warning, classes="warn", markup=False)
        yield VerticalScroll(Static(coloured(self._diff or "no file of yours changes"), id="diff"), classes="text")


def coloured(diff: str) -> Content:
    """Return a unified diff, coloured line by line."""
    lines = [Content.styled(clean(line), _STYLES.get(line[:1], "$text")) for line in diff.splitlines()]
    return Content("\n").join(lines)


@dataclass(frozen=True)
class InputsAnswer:
    """The user's choice in `InputsDialog`. `how` is "draft" (`text` is then the draft as the user edited it) or
    "record"."""

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


@dataclass(frozen=True)
class ExportChoice:
    form: str
    folder: str


class ExportDialog(Dialog[ExportChoice]):
    def __init__(self, job: str, folder: Path) -> None:
        super().__init__(f"Export the kernels of job {job}", Choice("w", "write", ExportChoice("", "")))
        self._folder = folder

    def body(self) -> Iterable[Widget]:
        yield Horizontal(Static("form"), Cycle(KINDS, KINDS[0], id="form"), classes="field")
        yield Horizontal(Static("new folder"), Input(str(self._folder), id="folder", compact=True), classes="field")
        words = (
            "kernelbench: one file with ModelNew, kernels inline. cuda-agent: a workdir of kernels and bindings. "
            "package: what pip installs. None of them needs this tool."
        )
        yield Static(words, classes="hint", markup=False)

    def answer(self, value: ExportChoice) -> None:
        folder = self.query_one("#folder", Input).value.strip()
        if folder:
            self.dismiss(ExportChoice(self.query_one("#form", Cycle).value, folder))


class CloseDialog(Dialog[str]):
    """Asks what to do with running jobs on exit. Returns "leave", "cancel" or "stay"."""

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
