"""Training runs."""

from __future__ import annotations

from pathlib import Path

from textual.widgets import Static


class Training(Static):
    def open(self, run: Path) -> None:
        self.update(str(run))
