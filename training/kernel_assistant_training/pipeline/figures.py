"""Figures of stages: handed on to the run's file, and the newest of them in a few words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernel_assistant.errors import StoreError, boundary
from kernel_assistant.session.training_run import METRICS

#: Shown while a stage runs, those of them that it has, in this order.
SHOWN = (
    "answer_loss",
    "answer_right",
    "loss",
    "reward",
    "pass_rate",
    "kl_reference",
    "explained_variance",
    "tasks",
    "kept_rate",
    "candidates_per_min",
    "rows",
    "rows_per_min",
    "tokens_per_s",
)
MOST_SHOWN = 3


class Copier:
    """Appends what a stage writes to the run's metrics, from byte `at` of the stage's on. `step` and `newest` are of
    what was seen so far."""

    def __init__(self, stage: Path, run: Path, at: int) -> None:
        self._from, self._to = stage / METRICS, run / METRICS
        # A kill or a full disk may have cut its last line off.
        with boundary(StoreError, f"cannot write {self._to}"), self._to.open("ab+") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
        self.at = at
        self.step = 0
        self.newest: dict[str, float] = {}

    def copy(self) -> bool:
        """Whole lines; whether there were any. A file that became shorter is read anew. Raises StoreError."""
        try:
            size = self._from.stat().st_size
            self.at = self.at if size >= self.at else 0
            if size == self.at:
                return False
            with self._from.open("rb") as file:
                file.seek(self.at)
                found = file.read()
        except FileNotFoundError:
            return False
        whole = found[: found.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._note(line)
        with boundary(StoreError, f"cannot write {self._to}"), self._to.open("ab") as file:
            file.write(whole)
        self.at += len(whole)
        return bool(whole)

    def _note(self, line: bytes) -> None:
        document = parsed(line)
        if document is None:
            return
        self.step = int(document["step"])
        self.newest |= numbers(document)


def parsed(line: bytes | str) -> dict[str, Any] | None:
    """A line of metrics, None for what is none."""
    try:
        document = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(document, dict) and isinstance(document.get("step"), int) and "stage" in document
    return document if whole else None


def numbers(document: dict[str, Any]) -> dict[str, float]:
    """Its figures."""
    skipped = ("step", "time", "seconds")
    return {
        name: float(one)
        for name, one in document.items()
        if isinstance(one, (int, float)) and not isinstance(one, bool) and name not in skipped
    }


def lines(stage: Path) -> list[dict[str, Any]]:
    """All of a stage's metrics, [] without any."""
    file = stage / METRICS
    found = map(parsed, file.read_bytes().splitlines()) if file.is_file() else ()
    return [one for one in found if one is not None]


def in_words(figures: dict[str, float]) -> str:
    """The first few of those that are shown."""
    names = [name for name in SHOWN if name in figures][:MOST_SHOWN]
    return "  ".join(f"{name.replace('_', ' ')} {said(name, figures[name])}" for name in names)


def said(name: str, value: float) -> str:
    """As people read it: shares in per cent, large numbers with separators."""
    share = name.endswith(("_rate", "_share")) and name != "learning_rate"
    if share or name == "answer_right":
        return f"{value:.1%}"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
