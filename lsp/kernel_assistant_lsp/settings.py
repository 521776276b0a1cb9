"""What the editor's settings say, as the command line's options would. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SECTION = "kernelAssistant"

#: Name in the editor → name in `config.Settings`. `budget.*` says how much a job may take of what.
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
    "budget.deviceTime": "device_time",
}
#: What a person can switch off.
SWITCHES = ("lens", "inlay", "ghostText", "diagnostics")


def flags_of(section: Mapping[str, Any]) -> dict[str, object]:
    """Options for `config.resolve`; what is empty is left to the files and the environment."""
    flat = _flat(section)
    return {name: flat[key] for key, name in _NAMES.items() if flat.get(key) not in (None, "")}


def switched_on(section: Mapping[str, Any], switch: str) -> bool:
    """Whether one of `SWITCHES` is on; all are unless they are turned off."""
    return section.get(switch) is not False


def section_of(value: object) -> dict[str, Any]:
    """Our section of what a client calls settings: the section itself, or an object that holds it."""
    if not isinstance(value, Mapping):
        return {}
    inner = value.get(SECTION, value)
    return dict(inner) if isinstance(inner, Mapping) else {}


def _flat(section: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in section.items():
        if isinstance(value, Mapping):
            found.update(_flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found
