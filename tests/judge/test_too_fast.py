"""Candidates that are faster than the device moves data: none is accused because a bandwidth was measured too low."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kernel_assistant.records import Outcome, Tier
from kernel_assistant.worker.measuring.profiling import Profiler
from kernel_assistant.worker.measuring.roofline import Roofline
from kernel_assistant.worker.verifying.verification import IncorrectOutput
from tests.common.caches import known_cpu
from tests.judge import kernels
from tests.worker.opened import open_text, profiling

#: Bytes/s of a machine that did something else.
LOW = 1e6


@pytest.mark.timed
@pytest.mark.slow
def test_an_honest_kernel_is_correct_where_bandwidth_was_measured_too_low(tmp_path: Path) -> None:
    known = known_cpu(tmp_path)
    device = msgspec.structs.replace(known, copy_bandwidth=LOW, read_bandwidth=LOW, bandwidth_datasheet=0.0)
    worker = kernels.new_worker(tmp_path / "worker.log")
    with kernels.environment(worker, tmp_path, device=device, nominal=False) as opened:
        (found,) = opened.evaluate([kernels.candidate()], Tier.quick)
    worker.close()
    assert found.outcome is Outcome.correct, found.message
    assert found.timing is not None and found.timing.roofline < 2.0


@pytest.fixture
def profiler(tmp_path: Path) -> Iterator[Profiler]:
    with profiling(open_text(tmp_path, kernels.MODULE), Roofline(copy=LOW, read=LOW, cache_bytes=1 << 20)) as made:
        yield made


def test_what_no_memory_can_do_is_too_fast_with_today_s_bandwidth_too(profiler: Profiler) -> None:
    possible, footprint = profiler.possible, profiler.task_sets.footprint
    floor, moved = possible.floor_seconds, possible.read_bytes + possible.written_bytes
    possible.measure_ceilings()
    now = possible.ceilings
    assert now.copy > LOW and possible.floor_seconds < floor
    assert possible.too_fast(0.5 * moved / now.limit, footprint)
    assert not possible.too_fast(2 * moved / now.limit, footprint)
    possible.require(2 * moved / now.limit, footprint)


def test_a_datasheet_needs_no_second_measurement(profiler: Profiler) -> None:
    known = profiler.possible.ceilings = Roofline(copy=LOW, read=LOW, datasheet=2 * LOW, cache_bytes=1 << 20)
    with pytest.raises(IncorrectOutput) as caught:
        profiler.possible.require(1e-9, profiler.task_sets.footprint)
    assert caught.value.outcome == "cheating"
    assert profiler.possible.ceilings is known


@pytest.fixture
def busy() -> Iterator[None]:
    """A process for each core that keeps it busy."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    yield
    for process in spinning:
        process.kill()
        process.wait()


@pytest.mark.timed
@pytest.mark.usefixtures("busy")
def test_beside_other_work_nobody_is_called_a_cheat_for_speed(profiler: Profiler) -> None:
    with pytest.raises(IncorrectOutput, match="busy machine") as caught:
        profiler.possible.require(1e-9, profiler.task_sets.footprint)
    assert caught.value.outcome == "inconclusive"
