"""The process that imports a slow file while the search runs."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernel_assistant.environment.job_clock import JobClock
from kernel_assistant.records import KernelTask
from kernel_assistant.session.kinds.ahead import Ahead, imported_ahead
from tests.common.tasks import task_of

#: Counts until a file tells it to stop.
COUNTS = """
import os, time
from torch import nn
at = {folder!r}
while not os.path.exists(os.path.join(at, "go")):
    with open(os.path.join(at, "count"), "ab") as file:
        file.write(b".")
    time.sleep(0.01)

class Net(nn.Module):
    def forward(self, x):
        return x
"""


@pytest.fixture
def ahead() -> Iterator[Ahead]:
    found = Ahead(sys.executable, threading.Event())
    yield found
    found.end()


def task(folder: Path, text: str) -> KernelTask:
    return task_of(folder / "model.py", text, target="cpu")


def counted(folder: Path) -> int:
    count = folder / "count"
    return count.stat().st_size if count.exists() else 0


def moves_on(folder: Path) -> None:
    """Returns when the import has progressed further."""
    before = counted(folder)
    while counted(folder) == before:
        time.sleep(0.01)


def test_it_stands_still_while_something_is_measured_and_is_handed_over_with_the_file(tmp_path, ahead):
    ahead.begin(task(tmp_path, COUNTS.format(folder=str(tmp_path))))
    moves_on(tmp_path)
    with ahead.quiet():
        state = Path("/proc", str(ahead._worker.process.pid), "stat")
        while state.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)
        before = counted(tmp_path)
        time.sleep(0.1)
        assert counted(tmp_path) == before
    moves_on(tmp_path)
    (tmp_path / "go").touch()
    worker = ahead.take(float("inf"))
    try:
        assert worker is not None and worker.alive
        with ahead.quiet():  # whose it is, measures in it
            assert worker.call("give_back", {}, timeout=60.0) == {}
    finally:
        worker.close()


@pytest.mark.parametrize("text", ["raise ImportError('not twice')", "import os\nos._exit(3)"])
def test_nothing_is_said_of_an_import_that_fails(tmp_path, ahead, text):
    ahead.begin(task(tmp_path, text))
    assert ahead.take(float("inf")) is None


def test_an_import_that_goes_on_for_too_long_is_ended(tmp_path, ahead):
    ahead.begin(task(tmp_path, COUNTS.format(folder=str(tmp_path))))
    moves_on(tmp_path)
    pid = ahead._worker.process.pid
    assert ahead.take(0.0) is None
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)


@pytest.mark.parametrize(("budget", "slow", "begun"), [(10.0, 20.0, False), (1000.0, 1.5, True), (1000.0, 0.1, False)])
def test_nothing_is_imported_ahead_where_the_search_has_less_time_than_that_takes(tmp_path, budget, slow, begun):
    """The wait for the interpreter came on top of a budget that was used up already."""
    opened = SimpleNamespace(
        worker=SimpleNamespace(python=sys.executable),
        facts={"import_seconds": slow},
        clock=JobClock(budget),
        pausing=[],
    )
    (tmp_path / "go").touch()
    subject = task(tmp_path, COUNTS.format(folder=str(tmp_path)))
    with imported_ahead(opened, subject, threading.Event()) as found:
        worker = found.take(float("inf"))
        assert (worker is not None) == begun
        if worker is not None:
            worker.close()
    assert opened.pausing == []
