"""A GPU's row in the devices pane, read from the screen as a person reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.common.gpu_load import Said

GIB = 1 << 30
_ROW = re.compile(
    r"\s*(?:(?P<busy>\d+)%|\?)"
    r"\s+(?:(?P<memory>[\d.]+)G of (?P<memory_total>[\d.]+)G|memory \?)"
    r"\s+(?:(?P<power>\d+) of (?P<power_limit>\d+) W|power \?)"
    r"\s+(?:(?P<temperature>\d+)|\?) C"
    r"(?:\s+(?P<processes>\d+) proc)?"
    r"\s*(?P<bars>[▁▂▃▄▅▆▇█ ]*)"
)
#: How far the pane may be from both of what nvidia-smi said before and after: a part, and an amount of the unit.
_SLACK = {
    "memory": (0.02, 0.1 * GIB),
    "memory_total": (0.0, 0.6 * GIB),
    "power": (0.25, 25.0),
    "power_limit": (0.0, 1.0),
    "temperature": (0.0, 5.0),
}


@dataclass(frozen=True)
class Row:
    """Units are those of `Said`; `bars` is the number of cells in the history that are not empty."""

    busy: float | None
    memory: float | None
    memory_total: float | None
    power: float | None
    power_limit: float | None
    temperature: float | None
    processes: int
    bars: int


def row_of(text: str, said: Said) -> Row | None:
    """Returns None if `text`, a screen, has no row with the GPU's number and name by nvidia-smi."""
    label = f"{said.index} {said.name.removeprefix('NVIDIA ')[:14]:<14} "
    line = next((line.split(label, 1)[1] for line in text.splitlines() if label in line), None)
    found = None if line is None else _ROW.match(line)
    if found is None:
        return None
    numbers = {name: float(value) for name in (*_SLACK, "busy") if (value := found[name]) is not None}
    return Row(
        busy=numbers.get("busy"),
        memory=_bytes(numbers.get("memory")),
        memory_total=_bytes(numbers.get("memory_total")),
        power=numbers.get("power"),
        power_limit=numbers.get("power_limit"),
        temperature=numbers.get("temperature"),
        processes=int(found["processes"] or 0),
        bars=len(found["bars"].replace(" ", "")),
    )


def differences(row: Row, before: Said, after: Said) -> list[str]:
    """The values in `row` that nvidia-smi reported neither before nor after it, and that do not lie between the two."""
    wrong = []
    for name, (part, amount) in _SLACK.items():
        seen = getattr(row, name)
        said = [value for value in (getattr(before, name), getattr(after, name)) if value is not None]
        if not said:
            continue
        slack = part * max(said) + amount
        if seen is None or not min(said) - slack <= seen <= max(said) + slack:
            wrong.append(f"{name}: {seen} here, {said} there")
    return wrong


def _bytes(gib: float | None) -> float | None:
    return None if gib is None else gib * GIB
