"""The dialog with the settings, their values and origins. They can be changed in the user's file."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from textual.widget import Widget
from textual.widgets import Input, Static

from kernel_assistant.errors import UsageError
from kernel_assistant_tui.dialogs.dialog import Choice, Dialog
from kernel_assistant_tui.widgets.rows import Piece, Rows, fitted


@dataclass(frozen=True)
class Setting:
    """One line of the list. `name` is a name for `config set`, `tui.theme` or `tui.keys.ACTION`; `where` is the
    origin of the value."""

    name: str
    value: str
    where: str
    doc: str


@dataclass(frozen=True)
class Change:
    name: str
    value: str


class SettingRows(Rows[Setting]):
    def pieces(self, item: Setting, width: int) -> list[Piece]:
        value = max(12, (width - 24) // 3)
        return [
            (f"{item.name[:23]:<23} ", "rows--strong"),
            (fitted(item.value, value) + " ", "rows--good" if item.where != "default" else ""),
            (item.doc, "rows--dim"),
        ]

    def key_of(self, item: Setting) -> Hashable:
        return item.name


class SettingsDialog(Dialog[Change]):
    """Shows the settings and returns one change. The caller makes the change and opens the dialog again, with the
    cursor on the setting `at` and the error message `wrong`."""

    FULL = True

    def __init__(self, settings: Sequence[Setting], at: str, wrong: str) -> None:
        super().__init__("Settings", Choice("c", "change", Change("", "")))
        self._settings = tuple(settings)
        self._at = at
        self._wrong = wrong

    def body(self) -> Iterable[Widget]:
        rows = SettingRows(id="setting-rows")
        rows.add_class("text")
        yield rows
        yield Static("", classes="hint", id="setting-where", markup=False)
        yield Input(placeholder="its new value; enter writes it", id="setting-value", compact=True, disabled=True)
        yield Static(self._wrong, classes="warn", id="setting-wrong", markup=False)

    def ready(self) -> None:
        rows = self._rows
        rows.show(self._settings)
        matches = [one for one in self._settings if one.name == self._at]
        if matches:
            rows.choose(matches[0])
        rows.focus()

    def on_rows_moved(self, event: Rows.Moved) -> None:
        one = event.item
        self.query_one("#setting-where", Static).update(f"{one.name} comes from {one.where}. {one.doc}")

    def on_rows_item_chosen(self, event: Rows.ItemChosen) -> None:
        self.answer(Change("", ""))

    def answer(self, value: Change) -> None:
        """Open the input line for the chosen setting, with its value. Enter in this line returns the change."""
        chosen = self._rows.chosen
        if chosen is not None:
            field = self.query_one("#setting-value", Input)
            field.disabled = False
            field.value = chosen.value
            field.focus()

    def entered(self) -> None:
        chosen = self._rows.chosen
        if chosen is not None:
            self.dismiss(Change(chosen.name, self.query_one("#setting-value", Input).value.strip()))

    def action_leave(self) -> None:
        field = self.query_one("#setting-value", Input)
        if field.has_focus:
            field.disabled = True
            self._rows.focus()
        else:
            self.dismiss(None)

    @property
    def _rows(self) -> SettingRows:
        return self.query_one("#setting-rows", SettingRows)


def wrong(error: UsageError) -> str:
    return f"{error.cause}: {error.next_step}" if error.next_step else error.cause
