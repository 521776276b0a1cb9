"""The table `[tui]` of the user's settings: theme and keys."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from textual.keys import Keys

from kernel_assistant.config import did_you_mean, user_file
from kernel_assistant.errors import UsageError
from kernel_assistant_tui.actions import ACTIONS
from kernel_assistant_tui.pane_keys import DEFAULT_KEYS
from kernel_assistant_tui.themes import DEFAULT, NAMES

_NEXT = "mend that file; docs/tui.md lists what [tui] takes"
_NAMED_KEYS = frozenset(key.value for key in Keys)


@dataclass(frozen=True)
class Preferences:
    """The user's theme and keys. `keys` maps the name of an action to its keys, separated by commas; it has only the
    actions whose keys the user has set."""

    theme: str = DEFAULT
    keys: Mapping[str, str] = field(default_factory=dict)

    def key(self, name: str) -> str:
        return self.keys.get(name, DEFAULT_KEYS[name])


def read_preferences(path: Path | None = None) -> Preferences:
    """Reads the user's theme and keys from `path` (None: the user's settings file); defaults if there is no file.
    Raises UsageError for an invalid value; the message names the file."""
    path = user_file() if path is None else path
    if not path.is_file():
        return Preferences()
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("tui", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}", "mend or remove that file") from error
    if not isinstance(table, dict):
        raise UsageError(f"{path}: [tui] is not a table", _NEXT)
    for name in set(table) - {"theme", "keys"}:
        raise UsageError(f"{path}: unknown tui.{name}{did_you_mean(name, ('theme', 'keys'))}", _NEXT)
    return Preferences(theme=_theme(table.get("theme", DEFAULT), path), keys=_keys(table.get("keys", {}), path))


def _theme(value: object, path: Path) -> str:
    if value not in NAMES:
        raise UsageError(
            f"{path}: unknown theme {value!r}{did_you_mean(str(value), NAMES)}", "one of " + ", ".join(NAMES)
        )
    return str(value)


def _keys(value: object, path: Path) -> dict[str, str]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: tui.keys is not a table", _NEXT)
    chosen: dict[str, str] = {}
    for name, keys in value.items():
        if name not in DEFAULT_KEYS:
            raise UsageError(f"{path}: unknown action tui.keys.{name}{did_you_mean(name, DEFAULT_KEYS)}", _NEXT)
        if not isinstance(keys, str) or not all(_is_key(one) for one in keys.split(",")):
            raise UsageError(f"{path}: tui.keys.{name} = {keys!r} is no key", "such as s, f5, ctrl+e or slash")
        chosen[name] = ",".join(_normal(one) for one in keys.split(","))
    _check_clashes(chosen, path)
    return chosen


def _check_clashes(mine: Mapping[str, str], path: Path) -> None:
    taken: dict[str, str] = {}
    for action in ACTIONS:
        for key in mine.get(action.name, action.key).split(","):
            if key in taken:
                raise UsageError(f"{path}: {key!r} is the key of {taken[key]} and of {action.name}", _NEXT)
            taken[key] = action.name


def _normal(key: str) -> str:
    """Return a key in Textual's spelling: characters that are not letters have their Unicode names."""
    from textual.keys import _character_to_key

    key = key.strip()
    return _character_to_key(key) if len(key) == 1 else key


def _is_key(key: str) -> bool:
    key = key.strip()
    last = key.split("+")[-1]
    return len(key) == 1 or len(last) == 1 or last in _NAMED_KEYS or last.replace("_", "").isalpha()
