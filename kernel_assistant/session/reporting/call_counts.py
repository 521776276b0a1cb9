"""Runs a program with applied kernels and reads how many calls the kernels served in all of its processes."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.apply.applied import counting
from kernel_assistant.session.scanning.program import run_here


@dataclass(frozen=True)
class CallCounts:
    """The number of calls of one class of a package. The kernels served `kernel` calls; the original served those in
    `fallbacks` (reason → number). `unused` says why the kernels could not be loaded; then no call is counted."""

    package: Path
    class_name: str
    kernel: int
    fallbacks: dict[str, int]
    unused: str


def run_counted(command: tuple[str, ...], *, quiet: bool) -> tuple[int, list[CallCounts]]:
    """Runs `command`. Returns its exit code, and the counts of every class with applied kernels that the program called
    or whose kernels it could not load.

    With `quiet` its output goes to stderr. Raises UsageError if the command does not exist or is not executable,
    MissingError if it cannot be started for another reason.
    """
    with tempfile.TemporaryDirectory(prefix="kernel-assistant-") as folder:
        # All of its processes count together, also those that a script starts one after another.
        exit_code = run_here(command, {**os.environ, **counting(folder)}, quiet=quiet, by="counters")
        return exit_code, read_counts(Path(folder))


def read_counts(folder: Path) -> list[CallCounts]:
    """Returns the counts that the processes of a program reported in `folder` (see `counting`), sorted by package and
    class."""
    reports = [json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))]
    counts = [
        CallCounts(Path(report["package"]), name, one["kernel"], one["fallbacks"], one.get("unused", ""))
        for report in reports
        for name, one in report["classes"].items()
    ]
    return sorted(counts, key=lambda one: (str(one.package), one.class_name))
