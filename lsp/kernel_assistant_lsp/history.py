"""What the store and applied packages know of each file's classes, read in threads and kept for requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernel_assistant.apply import AppliedClass, find_applied
from kernel_assistant.apply.applied import report_name, staleness
from kernel_assistant.apply.edit import LOADER
from kernel_assistant.apply.package import package_name
from kernel_assistant.apply.takeback import decorated_classes
from kernel_assistant.config import Settings
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.records.line_profile import LineProfile
from kernel_assistant.session.lines_job import latest_lines
from kernel_assistant.store import JobRow, Store
from kernel_assistant_lsp.state import ClassState, applied_figure, newest_jobs, of_job

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
        try:
            # Parsing a long file takes longer than looking for what the decorator has to say.
            decorated = decorated_classes(text) if LOADER in text else []
        except (SyntaxError, ValueError):
            return None
        rows = self._jobs(path) if self._there() else ()
        newest = newest_jobs(rows)
        states = {name: of_job(row, text) for name, row in newest.items()}
        for name, one in _applied(path, decorated).items():
            states[name] = _with_kernels(states.get(name, ClassState()), one, text, self._counters_dir)
        profiles = {name: latest_lines(list(rows), name) for name in dict.fromkeys(row.task.class_name for row in rows)}
        found = {name: profile for name, profile in profiles.items() if profile is not None}
        return Known(states, found, tuple(newest.values()))

    def _jobs(self, path: Path) -> tuple[JobRow, ...]:
        """Read again only where the store has changed: each carries the whole text that it ran."""
        version = self.store.data_version()
        if path not in self._rows or self._rows[path][0] != version:
            self._rows[path] = (version, tuple(self.store.jobs_of(str(path), limit=_MOST)))
        return self._rows[path][1]


_NOTHING = Known()


def _applied(path: Path, decorated: list[str]) -> dict[str, AppliedClass | None]:
    """Decorated class → its package, None where that is missing or cannot be read."""
    found: dict[str, AppliedClass | None] = dict.fromkeys(decorated)
    if decorated and (path.parent / package_name(path.stem)).is_dir():
        try:
            for one in find_applied([path]):
                if one.class_name in found and found[one.class_name] is None:
                    found[one.class_name] = one
        except KernelAssistantError:
            pass  # the lens says that the kernels cannot be read
    return found


def _with_kernels(state: ClassState, one: AppliedClass | None, text: str, counters_dir: Path) -> ClassState:
    if one is None:
        return replace(state, applied=True, stale="its kernels cannot be read; the original runs")
    calls, fallbacks = counted(counters_dir, one.package, one.class_name)
    return replace(
        state,
        applied=True,
        figure=applied_figure(one.provenance) or state.figure,
        stale=staleness(one, text),
        kernel_calls=calls,
        fallbacks=fallbacks,
    )


def counted(counters_dir: Path, package: Path, class_name: str) -> tuple[int | None, dict[str, int]]:
    """Calls that the kernels served and that fell back in the last program that reported; (None, {}) without one."""
    try:
        found = json.loads((counters_dir / report_name(package)).read_bytes())["classes"][class_name]
        fallbacks = {str(reason): int(count) for reason, count in found["fallbacks"].items()}
        return int(found["kernel"]), fallbacks
    except (OSError, ValueError, KeyError, TypeError):
        return None, {}
