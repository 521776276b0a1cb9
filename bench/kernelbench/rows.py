"""A file with a line of JSON for each problem."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from kernel_assistant_training.episodes.lines import EpisodeFile, read_lines

Row = dict[str, Any]


class RowFile:
    """Several threads may add rows. A line that a killed process did not finish is dropped with the first row added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._lines: EpisodeFile | None = None

    def read(self) -> list[Row]:
        """The rows; none if there is no file."""
        return list(read_lines(self.path, Row)) if self.path.exists() else []

    def add(self, row: Row) -> None:
        with self._lock:
            self._lines = self._lines or EpisodeFile(self.path)
            self._lines.add(row)


def key_of(row: Row) -> tuple[int, str]:
    """Level and problem of a row."""
    return row["level"], row["problem"]
