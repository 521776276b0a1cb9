"""Everything that is known of the project's classes. Read in a thread; what has not changed is not read again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kernel_assistant.apply.edit import LOADER
from kernel_assistant.config import Settings
from kernel_assistant.session.applied_state import states_of
from kernel_assistant.session.class_state import ClassState
from kernel_assistant.source.find import ModuleClass
from kernel_assistant.store import JobRow, Store
from kernel_assistant.store.scans import ScanStore
from kernel_assistant_tui.project.find import MOST_FILES, classes_in, python_files
from kernel_assistant_tui.project.module import Module, Rank, ordered

#: Newest jobs of a file, and newest scans, that are looked at.
_MOST_JOBS = 50
_MOST_SCANS = 20
#: Between two looks at a project that takes long to read.
_PART_S = 0.7


@dataclass(frozen=True)
class _File:
    """`stamp` tells whether the file has changed; `classes` is empty for most."""

    stamp: tuple[int, int]
    classes: tuple[ModuleClass, ...] = ()
    applied: bool = False


@dataclass
class Project:
    """Of one folder or file. `read` blocks, and may be called from several threads."""

    root: Path
    settings: Settings
    _files: dict[Path, _File] = field(default_factory=dict)
    _states: dict[Path, dict[str, ClassState]] = field(default_factory=dict)
    _ranks: dict[tuple[str, str], Rank] = field(default_factory=dict)
    _stamp: tuple[object, ...] = ()
    _jobs: dict[str, tuple[object, ...]] = field(default_factory=dict)
    _store: Store | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _opening: threading.Lock = field(default_factory=threading.Lock)

    @property
    def store(self) -> Store:
        """Opened when it is first needed: looking at a project makes no state folder."""
        with self._opening:
            if self._store is None:
                self._store = Store(self.settings.state_dir)
            return self._store

    @property
    def has_store(self) -> bool:
        return self._store is not None or (self.settings.state_dir / "store.sqlite").exists()

    @property
    def cut_off(self) -> bool:
        """Whether there are more files than are looked at."""
        return len(self._files) >= MOST_FILES

    def read(
        self, changed: Collection[Path] | None = None, on_part: Callable[[tuple[Module, ...]], None] | None = None
    ) -> tuple[Module, ...]:
        """The classes as they are now: every file is looked at, or only those that may have changed.

        Where that takes long `on_part` gets what is known so far. Raises StoreError.
        """
        with self._lock:
            everything = changed is None or self.root in changed
            touched = self._read_files(None if everything else set(changed or ()), on_part)
            self._read_states(touched)
            return ordered(self._modules())

    def jobs_changed(self) -> bool:
        """Whether jobs have begun or ended, here or elsewhere, since the last `read`. Raises StoreError."""
        return self.has_store and self.store.stamp() != self._stamp

    def _read_files(self, changed: set[Path] | None, on_part: Callable[[tuple[Module, ...]], None] | None) -> set[Path]:
        """The files whose text is another than before."""
        if changed is None:
            paths = list(python_files(self.root))
            paths += sorted(set(self._files) - set(paths))
        else:
            paths = sorted(changed)
        touched, told = set(), time.monotonic()
        for path in paths:
            if self._read_file(path):
                touched.add(path)
            if on_part is not None and time.monotonic() - told > _PART_S:
                on_part(ordered(self._modules()))
                told = time.monotonic()
        return touched

    def _read_file(self, path: Path) -> bool:
        stamp = _stamp(path)
        known = self._files.get(path)
        if stamp is None:
            return self._files.pop(path, None) is not None
        if known is not None and known.stamp == stamp:
            return False
        text, classes = classes_in(path)
        self._files[path] = _File(stamp, classes, LOADER in text)
        return True

    def _read_states(self, touched: set[Path]) -> None:
        """Of files that are not as they were, and of those whose jobs are not."""
        stamp = self.store.stamp() if self.has_store else ()
        if stamp != self._stamp:
            self._ranks = self._scanned()
        self._stamp = stamp
        before, self._jobs = self._jobs, self.store.path_stamps() if self.has_store else {}
        for path, file in self._files.items():
            known = self._jobs.get(str(path))
            if not file.classes or (known is None and not file.applied):
                self._states.pop(path, None)
            elif path in touched or file.applied or known != before.get(str(path)):
                self._read_state(path, [] if known is None else self.store.jobs_of(str(path), limit=_MOST_JOBS))

    def _read_state(self, path: Path, rows: list[JobRow]) -> None:
        text, _ = classes_in(path)
        states = states_of(path, text, rows, self.settings.counters_dir)
        if states is not None:
            self._states[path] = states

    def _scanned(self) -> dict[tuple[str, str], Rank]:
        """By the newest scan that saw a class of this project."""
        store = ScanStore(self.settings.state_dir)
        try:
            for scan in store.scans(limit=_MOST_SCANS):
                ranks = {
                    (row.path, row.qualname): Rank(place, row.share_seconds / scan.wall_seconds)
                    for place, row in enumerate(scan.classes, start=1)
                    if row.path and Path(row.path).is_relative_to(self.root)
                }
                if ranks:
                    return ranks
        finally:
            store.close()
        return {}

    def _modules(self) -> Iterable[Module]:
        base = self.root if self.root.is_dir() else self.root.parent
        for path, file in self._files.items():
            states = self._states.get(path, {})
            for one in file.classes:
                rank = self._ranks.get((str(path), one.name))
                where = str(path.relative_to(base))
                yield Module(path, where, one.name, one.line, states.get(one.name, ClassState()), rank)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
