"""What the store and applied packages know of each file's classes, read in threads and kept for requests."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernel_assistant.config import Settings
from kernel_assistant.records.line_profile import LineProfile
from kernel_assistant.session.applied_state import states_of
from kernel_assistant.session.class_state import ClassState, newest_jobs
from kernel_assistant.session.lines_job import latest_lines
from kernel_assistant.store import JobRow, Store

#: Newest jobs of a file that are looked at.
_MOST = 50


@dataclass(frozen=True)
class Known:
    """Of one file: `states` and the newest `profiles` by class, and the jobs that hovers tell of, newest first."""

    states: Mapping[str, ClassState] = field(default_factory=dict)
    profiles: Mapping[str, LineProfile] = field(default_factory=dict)
    rows: tuple[JobRow, ...] = ()


class History:
    """`read` is slow and may run in a thread; `of` never waits."""

    def __init__(self, settings: Settings) -> None:
        self._state_dir = settings.state_dir
        self._counters_dir = settings.counters_dir
        self._store: Store | None = None
        self._opening = threading.Lock()
        self._known: dict[Path, Known] = {}
        self._rows: dict[Path, tuple[int, tuple[JobRow, ...]]] = {}

    @property
    def store(self) -> Store:
        """Opened when it is first needed: a server that only shows lenses makes no state folder."""
        with self._opening:
            if self._store is None:
                self._store = Store(self._state_dir)
            return self._store

    def of(self, path: Path) -> Known:
        return self._known.get(path, _NOTHING)

    def forget_rows(self) -> None:
        """Our own connection has written: what it read before is old."""
        self._rows.clear()

    def read(self, path: Path, text: str) -> bool:
        """Look again; whether anything is different. Raises StoreError."""
        known = self._read(path, text)
        if known is None or known == self.of(path):
            return False
        self._known[path] = known
        return True

    def changed_by_others(self, seen: tuple[int, int]) -> tuple[int, int]:
        """Differs from `seen` once another process has written to the store, or reported what kernels served."""
        reported = self._counters_dir.stat().st_mtime_ns if self._counters_dir.is_dir() else 0
        return (self.store.data_version() if self._there() else seen[0]), reported

    def _there(self) -> bool:
        return self._store is not None or (self._state_dir / "store.sqlite").exists()

    def _read(self, path: Path, text: str) -> Known | None:
        """None where the text is not Python at the moment: what is known stands."""
        rows = self._jobs(path) if self._there() else ()
        states = states_of(path, text, rows, self._counters_dir)
        if states is None:
            return None
        profiles = {name: latest_lines(list(rows), name) for name in dict.fromkeys(row.task.class_name for row in rows)}
        found = {name: profile for name, profile in profiles.items() if profile is not None}
        return Known(states, found, tuple(newest_jobs(rows).values()))

    def _jobs(self, path: Path) -> tuple[JobRow, ...]:
        """Read again only where the store has changed: each carries the whole text that it ran."""
        version = self.store.data_version()
        if path not in self._rows or self._rows[path][0] != version:
            self._rows[path] = (version, tuple(self.store.jobs_of(str(path), limit=_MOST)))
        return self._rows[path][1]


_NOTHING = Known()
