"""Trajectories on disk: a file of JSON lines for each iteration, appended to, each line whole or not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kernel_assistant.errors import StoreError, boundary
from kernel_assistant_training.episodes.lines import Lines, read_lines
from kernel_assistant_training.ppo.trajectory import Trajectory

_NAME = "trajectories-{:06}.jsonl"
_NUMBER = re.compile(r"trajectories-(\d{6})\.jsonl")


class TrajectoryStore:
    """One writer for a folder. What is written stays, also when the process is killed; a line that was cut off is
    dropped when its file is opened again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: Lines | None = None
        self._open = -1

    def add(self, trajectory: Trajectory) -> None:
        """Raises StoreError where the disk is full."""
        with boundary(StoreError, f"{self._folder}: a trajectory could not be written"):
            if trajectory.iteration != self._open:
                self.close()
                self._lines = Lines(self._folder / _NAME.format(trajectory.iteration))
                self._open = trajectory.iteration
            assert self._lines is not None
            self._lines.add(trajectory)

    def read(self, iteration: int) -> Iterator[Trajectory]:
        """Those of an iteration, in the order in which they ended; nothing where it has no file."""
        path = self._folder / _NAME.format(iteration)
        if path.is_file():
            yield from read_lines(path, Trajectory)

    def iterations(self) -> list[int]:
        """Those with a file, in order."""
        found = (_NUMBER.fullmatch(path.name) for path in self._folder.glob("trajectories-*.jsonl"))
        return sorted(int(match[1]) for match in found if match)

    def all(self) -> Iterator[Trajectory]:
        for iteration in self.iterations():
            yield from self.read(iteration)

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
            self._lines, self._open = None, -1
