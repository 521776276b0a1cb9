"""Watches the files of the project for changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from kernel_assistant.apply.package import MANIFEST
from kernel_assistant_tui.project.find import is_part_of

#: Seconds in which changes are collected: editors and checkouts write many files at once.
_TOGETHER_S = 0.3


class Watcher:
    """Calls `on_change` in another thread with the changed files, in batches; calls `on_failure` with the reason if
    watching is not possible.

    If the root itself is among the changed files, a folder was created or deleted, and everything must be read again.
    """

    def __init__(
        self, root: Path, on_change: Callable[[frozenset[Path]], None], on_failure: Callable[[str], None]
    ) -> None:
        self._root = root
        self._on_change = on_change
        self._on_failure = on_failure
        self._observer: Any = Observer()
        self._observer.daemon = True
        self._changed: set[Path] = set()
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start to watch. Returns at once, although registering a large project takes a while."""
        threading.Thread(target=self._start, name="watch", daemon=True).start()

    def stop(self) -> None:
        """Stop without waiting: the threads are daemons."""
        self._observer.stop()

    def _start(self) -> None:
        watcher = self

        class Handler(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                if event.is_directory and event.event_type != "modified":
                    watcher._note({watcher._root})
                elif event.event_type not in ("opened", "closed_no_write"):
                    watcher._note({Path(str(name)) for name in (event.src_path, event.dest_path) if name})

        folder = self._root if self._root.is_dir() else self._root.parent
        try:
            self._observer.schedule(Handler(), str(folder), recursive=self._root.is_dir())
            self._observer.start()
        except OSError as error:
            self._on_failure(error.strerror or str(error))

    def _note(self, paths: set[Path]) -> None:
        matter = {path for path in map(self._meant, paths) if path is not None}
        if not matter:
            return
        with self._lock:
            self._changed |= matter
            if self._timer is None:
                self._timer = threading.Timer(_TOGETHER_S, self._tell)
                self._timer.daemon = True
                self._timer.start()

    def _meant(self, path: Path) -> Path | None:
        """Return the source file to which a change of `path` belongs, None if there is none. For a package of kernels
        this is the file beside it."""
        if path.name == MANIFEST and path.parent.name.endswith("_kernels"):
            path = path.parent.with_name(path.parent.name.removesuffix("_kernels") + ".py")
        return path if is_part_of(self._root, path) else None

    def _tell(self) -> None:
        with self._lock:
            changed, self._changed, self._timer = frozenset(self._changed), set(), None
        self._on_change(changed)
