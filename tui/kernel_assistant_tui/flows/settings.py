"""Lists the settings with their origins and changes them in the user's file. Changes apply from the next job on."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_assistant.apply.files import read_bytes, write_atomically
from kernel_assistant.config import Settings, documentation, trace, user_file
from kernel_assistant.errors import UsageError
from kernel_assistant.session.settings_file import kept_form, set_in_file, unset_in_file
from kernel_assistant.session.threads import in_thread
from kernel_assistant_tui.actions import ACTIONS
from kernel_assistant_tui.pane_keys import PANE_KEYS
from kernel_assistant_tui.preferences import Preferences, read_preferences
from kernel_assistant_tui.themes import NAMES

if TYPE_CHECKING:
    from kernel_assistant_tui.dialogs.settings import Setting
    from kernel_assistant_tui.screens.main import MainScreen


async def settings(screen: MainScreen) -> None:
    from kernel_assistant_tui.dialogs.settings import SettingsDialog, wrong

    at = complaint = ""
    while True:
        listed = await in_thread(lambda: listing(screen.work.root, screen.work.flags))
        change = await screen.app.push_screen_wait(SettingsDialog(listed, at, complaint))
        if change is None:
            return
        at, complaint = change.name, ""
        try:
            await in_thread(partial(write, change.name, change.value))
            screen.work.use(read_preferences())
            screen.work.settings = screen.work.settings_for(screen.work.root)
            screen.refresh_keys()
        except UsageError as error:
            complaint = wrong(error)


def listing(root: Path, flags: dict[str, object]) -> list[Setting]:
    """Returns all settings, the theme and all keys, each with its value and origin, for the dialog. Raises UsageError
    for an invalid settings file."""
    from kernel_assistant_tui.dialogs.settings import Setting

    settings, origins, _ = trace(root, flags)
    preferences = read_preferences()
    rows = [
        Setting(name, _shown(settings, name), origins[name].where or origins[name].layer, doc)
        for name, doc in documentation().items()
    ]
    where = str(user_file())
    default = Preferences()
    themed = where if preferences.theme != default.theme else "default"
    rows.append(Setting("tui.theme", preferences.theme, themed, "colours: " + ", ".join(NAMES)))
    keyed = {one.name: one.what for one in (*ACTIONS, *PANE_KEYS)}
    for name, what in keyed.items():
        origin = where if name in preferences.keys else "default"
        rows.append(Setting(f"tui.keys.{name}", preferences.key(name), origin, f"key of: {what}"))
    return rows


def write(name: str, value: str) -> None:
    """Set one value in the user's file; an empty `value` removes the setting.

    Raises UsageError if the value is invalid; then the file is not changed.
    """
    path = user_file()
    table, _, key = name.rpartition(".")
    if not value:
        unset_in_file(path, key, table)
        return
    if not table:
        set_in_file(path, name, kept_form(name, value))
        return
    before = read_bytes(path) if path.is_file() else None
    set_in_file(path, key, value, table)
    try:
        read_preferences(path)
    except UsageError:
        if before is None:
            path.unlink()
        else:
            write_atomically(path, before)
        raise


def _shown(settings: Settings, name: str) -> str:
    value = getattr(settings, name)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
