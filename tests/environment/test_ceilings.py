"""Tests the bandwidths of this CPU: a quiet machine measures and keeps them, on a busy machine they are unknown."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import msgspec
import pytest

from kernel_assistant.environment.ceilings import (
    keep_ceilings,
    known_ceilings,
    measure_ceilings,
    must_be_measured,
    with_ceilings,
)
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.targets import cpu


class Busy:
    """Stands in for the worker of a busy machine."""

    asked = 0

    def call(self, method: str, params: object, **limits: object) -> dict[str, object]:
        assert method == "calibrate"
        self.asked += 1
        rates = {"copy_bandwidth": 1.0, "read_bandwidth": 1.0, "flops_fp32": 1.0}
        return {**rates, "cache_bytes": 7, "quiet": False}


@pytest.mark.timed
def test_what_a_quiet_machine_moves_is_measured_once(worker: WorkerClient, tmp_path: Path) -> None:
    cancel = threading.Event()
    if not worker.hello:
        worker.start(cancel)
    device = cpu.facts()
    measured, _ = measure_ceilings(device, worker, cancel)
    assert 1e8 < measured.copy_bandwidth <= measured.read_bandwidth < 1e13
    assert known_ceilings(device, tmp_path) is None
    found = with_ceilings(device, worker, tmp_path, cancel)
    kept = known_ceilings(device, tmp_path)
    # Whether it is quiet now is for the machine to say: what was kept is what was found, what was not is unknown.
    assert (kept is None and found.copy_bandwidth == 0.0) or kept == found
    keep_ceilings(msgspec.structs.replace(device, copy_bandwidth=3.0, read_bandwidth=4.0), tmp_path)
    again = with_ceilings(device, worker, tmp_path, cancel)
    assert (again.copy_bandwidth, again.read_bandwidth) == (3.0, 4.0)


def test_a_busy_machine_is_not_measured_again_at_once(tmp_path: Path) -> None:
    device, cancel, worker = cpu.facts(), threading.Event(), Busy()
    found = with_ceilings(device, worker, tmp_path, cancel)
    assert (found.copy_bandwidth, found.cache_bytes, worker.asked) == (0.0, 7, 1)
    assert not must_be_measured(device, tmp_path)
    assert with_ceilings(device, worker, tmp_path, cancel) == found and worker.asked == 1
    os.utime(next(tmp_path.rglob("*.busy.json")), (0, 0))
    assert must_be_measured(device, tmp_path)
    with_ceilings(device, worker, tmp_path, cancel)
    assert worker.asked == 2
