"""Training runs below folders, by their metrics."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kernel_assistant.session.training_run import METRICS
from kernel_assistant_tui.project.find import SKIPPED

#: Folders that are looked into below each; a home folder must not be walked for minutes.
MOST_FOLDERS = 2_000
DEEPEST = 4


def newest_runs(*roots: Path) -> list[Path]:
    """Folders with metrics, the one that was written to last first. Walks folders: for threads."""
    found = {run: written for root in roots for run, written in _below(root)}
    return sorted(found, key=lambda run: -found[run])


def _below(root: Path) -> Iterator[tuple[Path, float]]:
    root = (root if root.is_dir() else root.parent).absolute()
    for count, (folder, names, files) in enumerate(os.walk(root)):
        if count >= MOST_FOLDERS:
            return
        deep = len(Path(folder).relative_to(root).parts)
        kept = [name for name in names if name not in SKIPPED and not name.startswith(".")]
        names[:] = sorted(kept) if deep < DEEPEST else []
        if METRICS in files:
            try:
                yield Path(folder), Path(folder, METRICS).stat().st_mtime
            except OSError:
                continue  # it went away meanwhile
