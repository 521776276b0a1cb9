"""Converts the editor's settings to options of the command line. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SECTION = "kernelAssistant"

#: Name in the editor → name in `config.Settings`. `budget.*` are the limits of a job.
_NAMES = {
    "target": "target",
    "policy": "policy",
    "endpoint": "endpoint",
    "host": "host",
    "sandbox": "sandbox",
    "interpreter": "python",
    "budget.seconds": "budget",
    "budget.episodes": "episodes",
    "budget.turns": "turns",
    "budget.tokens": "tokens",
    "budget.money": "money",
    "budget.deviceTime": "device_time",
}
#: Features that the user can switch off.
SWITCHES = ("lens", "inlay", "ghostText", "diagnostics")


def flags_of(section: Mapping[str, Any]) -> dict[str, object]:
    """Returns the options for `config.resolve` from the editor's settings. Empty settings and `auto` are left out, so
    that settings files and the environment decide: VS Code sends its defaults, which are `auto`, as if the user had
    chosen them."""
    flat = _flat(section)
    return {name: flat[key] for key, name in _NAMES.items() if flat.get(key) not in (None, "", "auto")}


def switched_on(section: Mapping[str, Any], switch: str) -> bool:
    """Return whether the feature `switch`, one of `SWITCHES`, is on; each is on by default."""
    return section.get(switch) is not False


def section_of(value: object) -> dict[str, Any]:
    """Return our section of the client's settings; `value` is the section itself or an object that contains it."""
    if not isinstance(value, Mapping):
        return {}
    inner = value.get(SECTION, value)
    return dict(inner) if isinstance(inner, Mapping) else {}


def _flat(section: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in section.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
