"""Reads the project's module classes and their states. Classes of installed libraries are included if a scan of one of
the project's programs kept their inputs. Read in a thread; unchanged files are not read again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernel_assistant.apply import is_installed, path_in_library, replaced_in
from kernel_assistant.apply.edit import LOADER
from kernel_assistant.config import Settings
from kernel_assistant.records.scan import Scan
from kernel_assistant.session.reporting.applied_state import states_of
from kernel_assistant.session.reporting.class_state import ClassState
from kernel_assistant.source.find import ModuleClass
from kernel_assistant.store import JobRow, Store
from kernel_assistant.store.scans import newest_scans
from kernel_assistant_tui.project.find import MOST_FILES, classes_in, python_files
from kernel_assistant_tui.project.module import Module, Rank, ordered

#: Number of the newest jobs of a file that are read.
_MOST_JOBS = 50
#: Seconds between two partial results while a large project is read.
_PART_S = 0.7


@dataclass(frozen=True)
class Scanned:
    """The results of a scan that concern the project. `ranks` maps (file, class) to its rank. `installed` maps each
    file of a library to those of its classes whose inputs were kept."""

    ranks: Mapping[tuple[str, str], Rank] = field(default_factory=dict)
    installed: Mapping[Path, frozenset[str]] = field(default_factory=dict)


def newest_scanned(state_dir: Path, root: Path) -> Scanned:
    """Returns the results of the newest scan that ran a program in `root` or recorded a class of `root`; empty if there
    is none. Raises StoreError."""
    by_scan = (_of(scan, root) for scan in newest_scans(state_dir))
    return next((scanned for scanned in by_scan if scanned.ranks), Scanned())


def _of(scan: Scan, root: Path) -> Scanned:
    base = root if root.is_dir() else root.parent
    ours = Path(scan.folder).is_relative_to(base)
    ranks: dict[tuple[str, str], Rank] = {}
    installed: dict[Path, set[str]] = {}
    for position, row in enumerate(scan.classes, start=1):
        path = Path(row.path)
        of_library = ours and row.installed and bool(row.folder)
        if row.path and (of_library or (not row.installed and path.is_relative_to(root))):
            ranks[(row.path, row.qualname)] = Rank(position, row.share_seconds / scan.counted_seconds)
        if row.path and of_library:
            installed.setdefault(path, set()).add(row.qualname)
    return Scanned(ranks, {path: frozenset(names) for path, names in installed.items()})


@dataclass(frozen=True)
class _File:
    """A file that was read. `stamp` is (mtime in ns, size), to detect changes; `classes` is empty for most files."""

    stamp: tuple[int, int]
    classes: tuple[ModuleClass, ...] = ()
    applied: bool = False


@dataclass
class Project:
    """The classes of one folder or file. `read` waits for the disk; several threads may call it."""

    root: Path
    settings: Settings
    _files: dict[Path, _File] = field(default_factory=dict)
    _states: dict[Path, dict[str, ClassState]] = field(default_factory=dict)
    _scan: Scanned = field(default_factory=Scanned)
    _replaced: dict[Path, dict[str, Path]] = field(default_factory=dict)
    _stamp: tuple[object, ...] = ()
    _jobs: dict[str, tuple[object, ...]] = field(default_factory=dict)
    _store: Store | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _opening: threading.Lock = field(default_factory=threading.Lock)

    @property
    def base(self) -> Path:
        """The folder to which shown paths are relative, and in which packages for installed libraries are written."""
        return self.root if self.root.is_dir() else self.root.parent

    @property
    def store(self) -> Store:
        """The store of jobs. It is opened at first use, so that showing a project creates no state folder."""
        with self._opening:
            if self._store is None:
                self._store = Store(self.settings.state_dir)
            return self._store

    @property
    def has_store(self) -> bool:
        return self._store is not None or (self.settings.state_dir / "store.sqlite").exists()

    @property
    def cut_off(self) -> bool:
        """Whether the project has more files than are read."""
        return len(self._files) >= MOST_FILES

    def read(
        self, changed: Collection[Path] | None = None, on_part: Callable[[tuple[Module, ...]], None] | None = None
    ) -> tuple[Module, ...]:
        """Reads the files in `changed` (None: all files) and returns all classes of the project, sorted by `ordered`.

        While that takes long, calls `on_part` from time to time with the classes known so far. Raises StoreError.
        """
        with self._lock:
            everything = changed is None or self.root in changed
            touched = self._read_files(None if everything else set(changed or ()), on_part)
            self._read_states(touched | self._read_scan())
            return ordered(self._modules())

    def jobs_changed(self) -> bool:
        """Whether the store has changed since the last `read`, because a job of any front end has begun or ended.
        Raises StoreError."""
        return self.has_store and self.store.stamp() != self._stamp

    def _read_files(self, changed: set[Path] | None, on_part: Callable[[tuple[Module, ...]], None] | None) -> set[Path]:
        """Read the files in `changed` (None: all files). Return those whose text has changed."""
        if changed is None:
            paths = list(python_files(self.root))
            paths += sorted(set(self._files) - set(paths))
        else:
            paths = sorted(changed)
        touched, reported = set(), time.monotonic()
        for path in paths:
            if self._read_file(path):
                touched.add(path)
            if on_part is not None and time.monotonic() - reported > _PART_S:
                on_part(ordered(self._modules()))
                reported = time.monotonic()
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

    def _read_scan(self) -> set[Path]:
        """Reads the newest scan. Returns the files of installed libraries whose states must be read again, because they
        are new or other kernels replace their classes now."""
        stamp = self.store.stamp() if self.has_store else ()
        if stamp != self._stamp:
            self._scan = newest_scanned(self.settings.state_dir, self.root)
        self._stamp = stamp
        touched = {path for path in self._scan.installed if path not in self._files and self._read_file(path)}
        before = self._replaced
        replaced = {path: replaced_in((self.base,), path) for path in self._scan.installed}
        self._replaced = {path: packages for path, packages in replaced.items() if packages}
        return touched | {path for path in replaced if replaced[path] != before.get(path, {})}

    def _read_states(self, touched: set[Path]) -> None:
        """Read the states of the classes in files that have changed, or whose jobs have changed."""
        before, self._jobs = self._jobs, self.store.path_stamps() if self.has_store else {}
        for path, file in self._files.items():
            known = self._jobs.get(str(path))
            if not file.classes or (known is None and not file.applied and path not in self._replaced):
                self._states.pop(path, None)
            elif path in touched or file.applied or known != before.get(str(path)):
                self._read_state(path, [] if known is None else self.store.jobs_of(str(path), limit=_MOST_JOBS))

    def _read_state(self, path: Path, rows: list[JobRow]) -> None:
        text, _ = classes_in(path)
        self._states[path] = states_of(path, text, rows, self.settings.counters_dir, (self.base,))

    def _modules(self) -> Iterable[Module]:
        for path, file in self._files.items():
            states = self._states.get(path, {})
            of_library = is_installed(path) and not is_installed(self.base)
            where = str(path_in_library(path)) if of_library else str(path.relative_to(self.base))
            for one in file.classes:
                if of_library and one.name not in self._scan.installed.get(path, ()):
                    continue
                rank = self._scan.ranks.get((str(path), one.name))
                yield Module(path, where, one.name, one.line, states.get(one.name, ClassState()), rank)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
