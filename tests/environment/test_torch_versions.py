"""Tests the judge with each torch: the interpreters in KERNEL_ASSISTANT_TEST_PYTHONS, else this one."""

from __future__ import annotations

import os
import sys

import pytest

from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import Outcome, Tier
from tests.judge.kernels import candidate, environment

PYTHONS = [name for name in os.environ.get("KERNEL_ASSISTANT_TEST_PYTHONS", "").split(os.pathsep) if name]


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS or [sys.executable])
def test_a_task_is_opened_and_a_candidate_judged(python, cache, tmp_path):
    started = WorkerClient(python, log=tmp_path / "worker.log")
    try:
        hello = started.start()
        version = tuple(int(part) for part in hello["torch"].split("+")[0].split(".")[:2])
        assert version >= (2, 9)
        with environment(started, tmp_path / "cache") as opened:
            assert list(opened.graph.dims) == ["B"]
            assert [node.op for node in opened.graph.nodes][:2] == ["pow.Tensor_Scalar", "mean.dim"]
            right, wrong = opened.evaluate([candidate(), candidate(("1e-6f", "1e-1f"))], Tier.full)
        assert right.outcome is Outcome.correct, right.message
        assert right.timing.compile_ms > 0
        assert right.accuracy.shapes_tried == 4
        assert wrong.outcome is Outcome.incorrect
    finally:
        started.close()
