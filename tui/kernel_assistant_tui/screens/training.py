"""Which training run to look at."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from textual.widget import Widget
from textual.widgets import Input, Static

from kernel_assistant_tui.project.find import SKIPPED
from kernel_assistant_tui.screens.dialog import Choice, Dialog

METRICS = "metrics.jsonl"
#: Folders of a project that are looked into; a home folder must not be walked for minutes.
_MOST_FOLDERS = 2_000


class RunDialog(Dialog[Path]):
    """Answers with a folder that holds `metrics.jsonl`."""

    def __init__(self, runs: Sequence[Path]) -> None:
        super().__init__("Which training run?", Choice("o", "open", Path()))
        self._runs = runs

    def body(self) -> Iterable[Widget]:
        yield Input(str(self._runs[0]) if self._runs else "", placeholder="its folder", id="run", compact=True)
        found = "\n".join(str(run) for run in self._runs[:8])
        words = f"Runs below the project, newest first:\n{found}" if found else f"No {METRICS} below the project."
        yield Static(words, classes="hint", markup=False)
        yield Static("", classes="warn", id="run-wrong", markup=False)

    def answer(self, value: Path) -> None:
        run = Path(self.query_one("#run", Input).value.strip()).expanduser()
        if (run / METRICS).is_file():
            self.dismiss(run.absolute())
        else:
            self.query_one("#run-wrong", Static).update(f"there is no {METRICS} in {run}")


def newest_runs(root: Path) -> list[Path]:
    """Folders with metrics below the project, the one that was written to last first."""
    found: list[tuple[float, Path]] = []
    for count, (folder, names, files) in enumerate(os.walk(root if root.is_dir() else root.parent)):
        if count >= _MOST_FOLDERS:
            break
        names[:] = sorted(name for name in names if name not in SKIPPED and not name.startswith("."))
        if METRICS in files:
            found.append((Path(folder, METRICS).stat().st_mtime, Path(folder)))
    return [path for _, path in sorted(found, reverse=True)]
