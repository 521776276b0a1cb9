"""Reads metrics of a run from files of JSON lines, and shows them as text: docs/training_metrics.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernel_assistant.errors import StoreError, boundary
from kernel_assistant.session.training_run import METRICS
from kernel_assistant.session.training_stages import appended_lines, is_share


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Returns the lines of a stage's metrics as dictionaries, without lines that lack stage, step or time; [] if the
    stage has no metrics."""
    return [row for row in read_objects(folder / METRICS) if {"stage", "step", "time"} <= row.keys()]


def read_objects(file: Path) -> list[dict[str, Any]]:
    """Returns the objects of a file of JSON lines, without incomplete lines; [] without a file."""
    return objects(file.read_bytes()) if file.is_file() else []


def objects(lines: bytes) -> list[dict[str, Any]]:
    """Returns the objects in JSON lines. Lines that contain no object are left out."""
    rows = []
    for line in lines.splitlines():
        with suppress(ValueError):
            rows.append(json.loads(line))
    return [row for row in rows if isinstance(row, dict)]


def copy_metrics(stage: Path, run: Path, start: int) -> tuple[int, list[dict[str, Any]]]:
    """Appends the complete lines of a stage's metrics, from byte `start` on, to the metrics of the run. Returns the
    position of the first byte that was not copied, and the copied lines. A file that became shorter is copied again
    from its beginning. Raises StoreError if the run's file cannot be written."""
    try:
        start, lines = appended_lines(stage / METRICS, start)
    except FileNotFoundError:
        return start, []
    if lines:
        with boundary(StoreError, f"cannot write {run / METRICS}"), (run / METRICS).open("ab") as file:
            file.write(lines)
    return start + len(lines), [row for row in objects(lines) if {"stage", "step"} <= row.keys()]


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Returns the metrics of a line: name → number, without the fields step, time and seconds."""
    given = {name: one for name, one in row.items() if isinstance(one, (int, float)) and not isinstance(one, bool)}
    return {name: float(one) for name, one in given.items() if name not in ("step", "time", "seconds")}


def as_text(name: str, value: float) -> str:
    """Returns a metric as text: shares in per cent, large numbers with separators."""
    if is_share(name):
        return f"{value:.1%}"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
