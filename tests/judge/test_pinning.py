"""Tests where the threads of a worker and of its children run: each thread of the pool on one core, others anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "kernel_assistant" / "worker" / "process"
PROGRAM = """
import json, os, subprocess, sys
sys.path.insert(0, {folder!r})
import pinning
pinning.import_torch()
import torch
threads = [sorted(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")]
look = "import os; print(sorted(os.sched_getaffinity(0)), 'OMP_PLACES' in os.environ)"
child = subprocess.run([sys.executable, "-c", look], stdout=subprocess.PIPE, text=True).stdout.strip()
with pinning.pinned():
    inside = sorted(os.sched_getaffinity(0))
print(json.dumps({{"main": sorted(os.sched_getaffinity(0)), "threads": threads, "child": child, "inside": inside,
                  "environment": pinning.environment(), "count": torch.get_num_threads()}}))
"""


def run(**environment: str) -> dict[str, object]:
    command = [sys.executable, "-c", PROGRAM.format(folder=str(FOLDER))]
    env = {**os.environ, **environment}
    return dict(json.loads(subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True, env=env)))


@pytest.mark.timed
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_pool_is_bound_and_nothing_else() -> None:
    found = run()
    allowed = sorted(os.sched_getaffinity(0))
    assert (found["main"], found["child"]) == (allowed, f"{allowed} False")
    assert isinstance(found["inside"], list) and len(found["inside"]) == 1
    assert isinstance(found["threads"], list) and isinstance(found["count"], int)
    assert sum(len(cpus) == 1 for cpus in found["threads"]) >= found["count"] - 1
    environment = found["environment"]
    assert isinstance(environment, dict) and environment["OMP_PROC_BIND"] == "true"
    assert set(environment["OMP_PLACES"].split(",")) == {f"{{{cpu}}}" for cpu in allowed}


def test_what_the_user_has_chosen_stands() -> None:
    found = run(OMP_PROC_BIND="false")
    assert found["environment"] == {}
    assert found["main"] == found["inside"] == sorted(os.sched_getaffinity(0))
