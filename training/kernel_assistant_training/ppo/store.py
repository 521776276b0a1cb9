"""Stores trajectories on disk, in one file of JSON lines for each iteration. Lines are appended; each line is complete
or absent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kernel_assistant.errors import StoreError, boundary
from kernel_assistant_training.episodes.lines import EpisodeFile, read_lines
from kernel_assistant_training.ppo.trajectory import Trajectory

_NAME = "trajectories-{:06}.jsonl"
_NUMBER = re.compile(r"trajectories-(\d{6})\.jsonl")


class TrajectoryStore:
    """The trajectories in a folder, a file for each iteration. Only one process may write to it. Complete lines survive
    if that process is killed; an incomplete line is removed when its file is opened for writing again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: EpisodeFile | None = None
        self._open = -1

    def add(self, trajectory: Trajectory) -> None:
        """Appends a trajectory to the file of its iteration. Raises StoreError if the disk is full."""
        with boundary(StoreError, f"{self._folder}: a trajectory could not be written"):
            if trajectory.iteration != self._open:
                self.close()
                self._lines = EpisodeFile(self._folder / _NAME.format(trajectory.iteration))
                self._open = trajectory.iteration
            assert self._lines is not None
            self._lines.add(trajectory)

    def read(self, iteration: int) -> Iterator[Trajectory]:
        """Yields the trajectories of an iteration; none if it has no file. They are ordered by task and seed, so that
        learning does not depend on which thread ended first."""
        path = self._folder / _NAME.format(iteration)
        if path.is_file():
            yield from sorted(read_lines(path, Trajectory), key=lambda one: (one.key, one.seed))

    def iterations(self) -> list[int]:
        """Returns the iterations that have a file, ascending."""
        matches = (_NUMBER.fullmatch(path.name) for path in self._folder.glob("trajectories-*.jsonl"))
        return sorted(int(match[1]) for match in matches if match)

    def all(self) -> Iterator[Trajectory]:
        for iteration in self.iterations():
            yield from self.read(iteration)

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
            self._lines, self._open = None, -1
