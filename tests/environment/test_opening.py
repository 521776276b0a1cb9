"""Tests that a module which ends the worker while it is opened is reported as the user's error, with its name."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from kernel_assistant.environment.ceilings import ceilings_of
from kernel_assistant.environment.job_clock import JobClock
from kernel_assistant.environment.stage_messages import (
    LEAST_SECONDS,
    OPEN_SECONDS,
    StageMessages,
    call_naming_stages,
    opening_seconds,
)
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import UsageError, WorkerError
from kernel_assistant.events import AnyEvent, Progress
from kernel_assistant.records import to_builtins
from kernel_assistant.targets.detect import detect
from tests.common.clocks import Moved
from tests.common.tasks import task_of

MODULE = """
import ctypes, os, signal, torch
{imported}
class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {built}
    def forward(self, x):
        {called}
        return x + 1
def get_inputs():
    return [torch.ones(4)]
"""
QUIET = {"imported": "", "built": "pass", "called": "pass"}
ENDED = "model.py: Gate ended the process with "


def opened(folder: Path, where: str, code: str, *, seconds: float = 60.0, method: str = "open_task") -> None:
    task = task_of(folder / "model.py", MODULE.format(**{**QUIET, where: code}), "Gate", module_name="model")
    runner = {"argv": ["/bin/true"], "env": {}, "device": 0}
    params = {"task": to_builtins(task), "runner": runner, "ceilings": ceilings_of(detect("cpu"))}
    worker = WorkerClient(sys.executable, log=folder / "log")
    try:
        worker.start()
        call_naming_stages(worker, method, {**params, "device": 0, "seconds": 1.0}, threading.Event(), seconds)
    finally:
        worker.kill()


@pytest.mark.parametrize(
    ("where", "code", "cause"),
    [
        ("imported", "os._exit(3)", ENDED + "status 3 while it was imported"),
        ("built", "os._exit(0)", ENDED + "status 0 while it was built (__init__)"),
        ("called", "os._exit(3)", ENDED + "status 3 while it was traced (forward)"),
        ("called", "torch.compiler.is_compiling() or os._exit(3)", ENDED + "status 3 while it was called (forward)"),
        ("called", "ctypes.string_at(0)", ENDED + "SIGSEGV while it was traced (forward)"),
        ("built", "os.abort()", ENDED + "SIGABRT while it was built (__init__)"),
        ("built", "signal.raise_signal(signal.SIGALRM)", ENDED + "SIGALRM while it was built (__init__)"),
        ("imported", "raise SystemExit(3)", "importing model.py failed at model.py:3: SystemExit: 3"),
        ("built", "raise SystemExit(3)", "building Gate failed at model.py:7: SystemExit: 3"),
        ("called", "raise SystemExit(3)", "Gate.forward failed at model.py:9: SystemExit: 3"),
        ("imported", "os.fork()", "importing model.py forks the process at model.py:3"),
        ("built", "os.fork()", "building Gate forks the process at model.py:7"),
        ("called", "os.fork()", "Gate.forward forks the process at model.py:9"),
    ],
)
def test_a_module_that_ends_leaves_or_forks_is_named(tmp_path: Path, where: str, code: str, cause: str) -> None:
    with pytest.raises(UsageError) as caught:
        opened(tmp_path, where, code)
    assert caught.value.cause == cause and caught.value.next_step


def test_a_worker_that_is_killed_is_not_the_modules_doing(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="died of SIGKILL"):
        opened(tmp_path, "imported", "os.kill(os.getpid(), signal.SIGKILL)")


@pytest.mark.parametrize(("where", "stage"), [("imported", "imported"), ("called", r"traced \(forward\)")])
def test_a_module_that_hangs_is_named_at_the_limit(tmp_path: Path, where: str, stage: str) -> None:
    with pytest.raises(UsageError, match=f"^model.py: Gate was still being {stage} after 3 s$") as caught:
        opened(tmp_path, where, "while True: pass", seconds=3.0)
    assert "--budget" in caught.value.next_step


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("while True: pass", r"was still being called \(forward\) after 3 s"),
        ("os._exit(3)", "ended the process with status 3"),
    ],
)
def test_the_times_of_lines_name_it_as_well(tmp_path: Path, code: str, what: str) -> None:
    with pytest.raises(UsageError, match=f"^model.py: Gate {what}"):
        opened(tmp_path, "called", code, seconds=3.0, method="profile_lines")


def test_what_takes_long_is_told_and_again_later() -> None:
    stages = list[str]()
    clock, events = Moved(), list[AnyEvent]()
    telling = StageMessages(lambda: stages[-1], "model.py: Gate", events.append, clock)
    for stage, seconds in (("import", 60), ("forward", 8)):
        stages.append(stage)
        for _ in range(seconds):
            telling()
            clock.seconds += 1.0
    assert [event.message for event in events if isinstance(event, Progress)] == [
        "model.py: Gate is still being imported, for 5 s until now",
        "model.py: Gate is still being imported, for 15 s until now",
        "model.py: Gate is still being imported, for 45 s until now",
        "model.py: Gate is still being called (forward), for 5 s until now",
    ]


def test_opening_has_the_budget_and_time_enough_to_import_torch() -> None:
    clock = Moved()
    assert opening_seconds(JobClock(120.0, now=clock)) == 120.0
    assert opening_seconds(JobClock(2.0, now=clock)) == LEAST_SECONDS
    assert opening_seconds(JobClock(now=clock)) == OPEN_SECONDS
