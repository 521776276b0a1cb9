"""The memory that an idle worker keeps, and what it forgets between tasks."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
import torch
from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list

from kernel_assistant.records import Outcome, Tier
from kernel_assistant.worker.main import Worker
from kernel_assistant.worker.process import idle
from tests.judge import kernels

#: docs/templates.md has what was measured.
MOST_MIB = 400


def mib(pid: int) -> float:
    return float(psutil.Process(pid).memory_full_info().pss) / 2**20


@pytest.mark.timed
def test_an_idle_worker_is_small_and_goes_on(tmp_path: Path) -> None:
    """Tests it after a job with torch.compile; then the worker opens and judges a task again."""
    worker = kernels.new_worker(tmp_path / "worker.log")
    try:
        with kernels.environment(worker, tmp_path) as opened:
            assert opened.baseline(compiled=True).compile_ms
            (before,) = opened.evaluate([kernels.candidate()], Tier.quick)
        worker.call("give_back", {}, timeout=60)
        processes = [worker.process.pid, *(one.pid for one in psutil.Process(worker.process.pid).children(True))]
        assert sum(map(mib, processes)) <= MOST_MIB
        with kernels.environment(worker, tmp_path) as opened:
            assert opened.baseline(compiled=True).compile_ms
            (again,) = opened.evaluate([kernels.candidate()], Tier.quick)
        for one in (before, again):
            assert one.outcome is Outcome.correct, one.message
    finally:
        worker.close()


def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@pytest.mark.timed
def test_waiting_gives_back_what_nobody_needs_and_ends_when_something_comes() -> None:
    torch.compile(twice, backend="eager")(torch.ones(3))
    source, sink = os.pipe()
    with os.fdopen(source, "rb") as stream, os.fdopen(sink, "wb") as writer:
        writer.write(b"x")
        writer.flush()
        idle.wait(stream, seconds=3600.0)
        assert stream.read(1) == b"x" and _debug_get_cache_entry_list(twice.__code__)
        idle.wait(stream, seconds=0.0)
        assert not _debug_get_cache_entry_list(twice.__code__)


@pytest.mark.timed
def test_nothing_is_given_back_while_a_task_is_open() -> None:
    worker = Worker()
    assert not worker.is_open
    worker._task = object()
    assert worker.is_open


def test_closing_a_task_forgets_what_was_compiled() -> None:
    torch.compile(twice, backend="eager")(torch.ones(3))
    assert _debug_get_cache_entry_list(twice.__code__)
    Worker().close_task({}, ())
    assert not _debug_get_cache_entry_list(twice.__code__)
