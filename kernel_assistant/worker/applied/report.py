"""If KERNEL_ASSISTANT_COUNTERS=FOLDER is set, writes at the end of a program how many calls ran the kernels, and how
many ran the original code instead, and why.

There is one file for each package, about the last program that called it. A process and the processes that it starts,
forks included, count as one program: their counters are added up. Without the variable nothing is written."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import util
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Classes = dict[str, dict[str, Any]]

VARIABLE = "KERNEL_ASSISTANT_COUNTERS"
#: Environment variable that the first process of a program sets for the processes that it starts.
PROGRAM = "KERNEL_ASSISTANT_COUNTERS_PROGRAM"
_asked: list[_Report] = []


class _Report:
    """Adds the counters of one applied package (how often its kernels ran, and why not) to its file in `folder` when
    the process ends. `counters` returns them. Writing resets them, so that no call is counted twice."""

    def __init__(self, folder: str, package: str, counters: Callable[[], Classes], reset: Callable[[], None]) -> None:
        self._folder, self._package, self._counters, self._reset = folder, package, counters, reset

    def write(self) -> None:
        classes = {name: one for name, one in self._counters().items() if one["kernel"] or one["fallbacks"]}
        classes.update((name, one) for name, one in self._counters().items() if "unused" in one)
        self._reset()
        if classes:
            _write(self._folder, self._package, classes)

    def in_fork(self) -> None:
        """Makes this forked child write the report when it ends; children of `multiprocessing` do not run functions of
        `atexit`. The parent writes its own counters itself."""
        util.Finalize(None, self.write, exitpriority=0)


def report_at_exit(package: str, counters: Callable[[], Classes], reset: Callable[[], None]) -> None:
    """Arranges that `counters()` of the package whose folder is `package` are written when the program ends, if the
    variable KERNEL_ASSISTANT_COUNTERS is set. `reset` sets the counters to zero. Only the first call has an effect."""
    folder = os.environ.get(VARIABLE, "")
    if folder and not _asked:
        os.environ.setdefault(PROGRAM, f"{os.getpid()} {time.time_ns()}")
        report = _Report(folder, package, counters, reset)
        _asked.append(report)
        atexit.register(report.write)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=reset)
        util.register_after_fork(report, _Report.in_fork)


def file_name(package: str) -> str:
    """Returns the file name of the report; `package` is the path of the package's folder without symbolic links."""
    return hashlib.sha256(os.fsencode(package)).hexdigest()[:24] + ".json"


def _write(folder: str, package: str, counters: Classes) -> None:
    package, program = os.path.realpath(package), os.environ.get(PROGRAM, "")
    path = os.path.join(folder, file_name(package))
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with _alone(f"{path}.lock"):
            classes = _added(_written(path, program), counters)
            with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
                json.dump({"package": package, "program": program, "classes": classes}, file)
            os.replace(f"{path}.{os.getpid()}", path)
    except OSError:
        pass  # a program must not fail at its end because the report cannot be written


def _written(path: str, program: str) -> Classes:
    """Returns the counters in the file `path`, if processes of the program `program` have written them, else {}."""
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError):
        return {}
    return report["classes"] if report.get("program") == program else {}


def _added(before: Classes, now: Classes) -> Classes:
    total: Classes = {}
    for classes in (before, now):
        for name, one in classes.items():
            row = total.setdefault(name, {**one, "kernel": 0, "fallbacks": {}})
            row["kernel"] += one["kernel"]
            for reason, count in one["fallbacks"].items():
                row["fallbacks"][reason] = row["fallbacks"].get(reason, 0) + count
    return total


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Holds a lock of the file `path` during the `with` block, if the system has file locks, so that processes that end
    at the same time write one after another."""
    with open(path, "wb") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
