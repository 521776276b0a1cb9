"""Faster than the device can move the data: nobody is accused by a bandwidth that was measured too low."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kernel_assistant.environment.ceilings import keep_ceilings
from kernel_assistant.environment.session import open_environment
from kernel_assistant.records import Outcome, Tier
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.source import build_task
from kernel_assistant.targets import cpu
from kernel_assistant.worker.open_task import open_task
from kernel_assistant.worker.profiling import Profiler
from kernel_assistant.worker.roofline import Ceilings
from kernel_assistant.worker.verification import Case, expect
from tests.judge import kernels

#: Bytes/s of a machine that did something else.
LOW = 1e6


def test_an_honest_kernel_is_correct_where_bandwidth_was_measured_too_low(tmp_path: Path) -> None:
    device = msgspec.structs.replace(cpu.facts(), copy_bandwidth=LOW, read_bandwidth=LOW)
    keep_ceilings(device, tmp_path)
    worker = kernels.new_worker(tmp_path / "worker.log")
    with open_environment(
        kernels.task(),
        device=device,
        worker=worker,
        sandbox_mode="auto",
        cache_dir=tmp_path,
        cancel=threading.Event(),
        emit=lambda event: None,
    ) as opened:
        (found,) = opened.evaluate([kernels.candidate()], Tier.quick)
    worker.close()
    assert found.outcome is Outcome.correct, found.message
    assert found.timing is not None and found.timing.roofline < 2.0


@pytest.fixture
def profiler(tmp_path: Path) -> Iterator[Profiler]:
    path = tmp_path / "norm.py"
    path.write_text(kernels.MODULE)
    task = open_task(to_builtins(build_task(str(path), target="cpu", numerics="kernelbench")), "cpu")
    base = expect(task, Case(0, "declared", None, 1))
    assert base is not None
    made = Profiler(task, base, Ceilings(copy=LOW, read=LOW, cache_bytes=1 << 20), "cpu")
    yield made
    made.close()


def test_what_no_memory_can_do_is_too_fast_with_today_s_bandwidth_too(profiler: Profiler) -> None:
    floor, moved = profiler.floor_seconds, profiler.read_bytes + profiler.written_bytes
    now = profiler._measured_again()
    assert now.copy > LOW and profiler.floor_seconds < floor
    assert profiler.too_fast(0.5 * moved / now.limit) and not profiler.too_fast(2 * moved / now.limit)


def test_a_datasheet_needs_no_second_measurement(profiler: Profiler) -> None:
    profiler.ceilings = Ceilings(copy=LOW, read=LOW, datasheet=2 * LOW, cache_bytes=1 << 20)
    assert profiler._measured_again() is profiler.ceilings and profiler.ceilings.copy == LOW
