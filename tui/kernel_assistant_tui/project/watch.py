"""Says when files of the project change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from kernel_assistant.apply.package import MANIFEST
from kernel_assistant_tui.project.find import is_part_of

#: Editors and checkouts write many files at once.
_TOGETHER_S = 0.3


class Watcher:
    """Calls `on_change` in a thread of its own with files that have changed, `on_failure` where nothing can be watched.

    The root itself among them means: look at everything, a folder has come or gone.
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
        """Returns at once: a large project takes a while to be watched."""
        threading.Thread(target=self._start, name="watch", daemon=True).start()

    def stop(self) -> None:
        """Not waited for: its threads are daemons."""
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
        """The source file that a change is about: a package of kernels changes what is known of the file beside it."""
        if path.name == MANIFEST and path.parent.name.endswith("_kernels"):
            path = path.parent.with_name(path.parent.name.removesuffix("_kernels") + ".py")
        return path if is_part_of(self._root, path) else None

    def _tell(self) -> None:
        with self._lock:
            changed, self._changed, self._timer = frozenset(self._changed), set(), None
        self._on_change(changed)
