"""Finds training runs below folders. A run of one stage has a file with metrics, a run of a recipe has several
stages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.session.training_run import METRICS, STATUS, read_status
from kernel_assistant_tui.project.find import SKIPPED
from kernel_assistant_tui.runs.pipeline import is_pipeline, read_stages

#: Most folders that are searched below each root, so that a home folder does not take minutes.
MOST_FOLDERS = 2_000
DEEPEST = 4


@dataclass(frozen=True)
class TrainingRun:
    """A training run. `state` comes from its status file, "" without one. `stages` says how many stages are done, or
    is the name of the only stage. `written` is the time of the last write, in seconds since the epoch."""

    path: Path
    state: str
    stages: str
    written: float


def newest_runs(*roots: Path) -> list[TrainingRun]:
    """Returns the training runs below the folders `roots`, the one written to last first. The stages of a recipe are
    not listed as runs of their own. Walks the folders: call it in a thread."""
    last_written = {run: written for root in roots for run, written in _below(root)}
    return [_described(run, last_written[run]) for run in sorted(last_written, key=lambda run: -last_written[run])]


def _described(run: Path, written: float) -> TrainingRun:
    status = read_status(run)
    stages = read_stages(run, status)
    over = sum(one.state in ("done", "limit") for one in stages)
    words = f"{over} of {len(stages)} stages" if stages else status.stage if status is not None else ""
    return TrainingRun(run, status.state.value if status is not None else "", words, written)


def _below(root: Path) -> Iterator[tuple[Path, float]]:
    root = (root if root.is_dir() else root.parent).absolute()
    for count, (folder, names, files) in enumerate(os.walk(root)):
        if count >= MOST_FOLDERS:
            return
        deep = len(Path(folder).relative_to(root).parts)
        kept = [name for name in names if name not in SKIPPED and not name.startswith(".")]
        names[:] = sorted(kept) if deep < DEEPEST else []
        whole = STATUS in files and is_pipeline(Path(folder))
        if whole:
            names.clear()
        if whole or METRICS in files:
            try:
                yield Path(folder), Path(folder, STATUS if whole else METRICS).stat().st_mtime
            except OSError:
                continue  # deleted meanwhile
