"""The states, jobs and line profiles of the classes of each file, from the store and from applied packages. They are
read in threads and cached for requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernel_assistant.config import Settings
from kernel_assistant.records.line_profile import LineProfile
from kernel_assistant.session.kinds.lines_job import latest_lines
from kernel_assistant.session.reporting.applied_state import states_of
from kernel_assistant.session.reporting.class_state import ClassState, newest_jobs
from kernel_assistant.store import JobRow, Store

#: Number of the newest jobs of a file that are read.
_MOST = 50


@dataclass(frozen=True)
class ClassHistory:
    """The stored facts about one file: `states` and the newest line `profiles`, both by class name, and the newest job
    of each class (`rows`), which hovers show."""

    states: Mapping[str, ClassState] = field(default_factory=dict)
    profiles: Mapping[str, LineProfile] = field(default_factory=dict)
    rows: tuple[JobRow, ...] = ()


class History:
    """The cached history of all files. `read` is slow and may run in a thread; `of` never waits. `folders` returns
    the folders of the workspace."""

    def __init__(self, settings: Settings, folders: Callable[[], list[Path]] = list) -> None:
        self._state_dir = settings.state_dir
        self._counters_dir = settings.counters_dir
        self._folders = folders
        self._store: Store | None = None
        self._opening = threading.Lock()
        self._known: dict[Path, ClassHistory] = {}
        self._rows: dict[Path, tuple[int, tuple[JobRow, ...]]] = {}

    @property
    def store(self) -> Store:
        """The store of jobs. It is opened at first use, so that a server that only shows lenses creates no state
        folder.
        """
        with self._opening:
            if self._store is None:
                self._store = Store(self._state_dir)
            return self._store

    def of(self, path: Path) -> ClassHistory:
        return self._known.get(path, _NOTHING)

    def forget_rows(self) -> None:
        """Drop the cached rows. Call it after our own connection has written to the store."""
        self._rows.clear()

    def read(self, path: Path, text: str) -> bool:
        """Read the history of a file again. Return whether it changed. Raises StoreError."""
        known = self._read(path, text)
        if known == self.of(path):
            return False
        self._known[path] = known
        return True

    def changed_by_others(self, seen: tuple[int, int]) -> tuple[int, int]:
        """Returns a pair: the version of the store, and the time, in nanoseconds, of the last change in the folder in
        which processes report calls of applied kernels (0 without that folder). The pair differs from `seen`, the pair
        of an earlier call, if since then another process has written to the store, or one has reported calls. What is
        written through this object's `store` does not change the version. As long as there is no store, its version is
        that of `seen`."""
        reported = self._counters_dir.stat().st_mtime_ns if self._counters_dir.is_dir() else 0
        return (self.store.data_version() if self._there() else seen[0]), reported

    def _there(self) -> bool:
        return self._store is not None or (self._state_dir / "store.sqlite").exists()

    def _read(self, path: Path, text: str) -> ClassHistory:
        rows = self._jobs(path) if self._there() else ()
        states = states_of(path, text, rows, self._counters_dir, self._folders())
        profiles = {name: latest_lines(list(rows), name) for name in dict.fromkeys(row.task.class_name for row in rows)}
        profiled = {name: profile for name, profile in profiles.items() if profile is not None}
        return ClassHistory(states, profiled, tuple(newest_jobs(rows).values()))

    def _jobs(self, path: Path) -> tuple[JobRow, ...]:
        """Return the jobs of a file. They are read only if the store has changed, since each row has a whole source
        text."""
        version = self.store.data_version()
        if path not in self._rows or self._rows[path][0] != version:
            self._rows[path] = (version, tuple(self.store.jobs_of(str(path), limit=_MOST)))
        return self._rows[path][1]


_NOTHING = ClassHistory()
