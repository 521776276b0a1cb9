"""The pool with real workers: each candidate is evaluated once, and a lost worker costs only its current evaluation."""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import replace
from itertools import islice

import pytest

from kernel_assistant.environment.ceilings import known_ceilings
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import DeviceError
from kernel_assistant.records import Outcome, Tier
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.episodes.subject import subjects
from kernel_assistant_training.evaluation.bandwidth import folder_with_bandwidth
from kernel_assistant_training.ppo.pool import pool as pool_module
from kernel_assistant_training.ppo.pool.pool import EvaluationPool, PoolOptions
from tests.common.caches import known_cpu
from tests.pool.hosts import requests

pytestmark = pytest.mark.slow


@pytest.fixture
def options(tmp_path):
    """With a bandwidth that no processor has: otherwise a candidate is sometimes too fast to be believed, and void."""
    known_cpu(tmp_path / "cache")
    return PoolOptions(target="cpu", out=tmp_path, cache=tmp_path / "cache", python=sys.executable)


@pytest.fixture(scope="module")
def asked():
    """Two tasks with a right candidate each; the first one also has a wrong candidate and one that does not compile."""
    first, second = islice(subjects(1, "cpu"), 2)
    return [*requests(first, "undeclared;", "return;"), *requests(second)]


def test_identical_candidates_are_judged_once_also_after_a_restart(options, asked, monkeypatch):
    right, broken, wrong, other = asked
    with EvaluationPool(options) as pool:
        opened = pool.open([right.task, other.task])
        assert opened.keys() == {right.task.key, other.task.key}
        assert all(one.baseline.eager_ms > 0 for one in opened.values())
        first = pool.judge([right, other, right, broken, wrong])
        outcomes = [Outcome.correct, Outcome.correct, Outcome.correct, Outcome.compile_error, Outcome.incorrect]
        assert [one.outcome for one in first] == outcomes
        assert first[0] is first[2]
        assert (pool.judged, pool.repeated, pool.void) == (4, 1, 0)
    with EvaluationPool(options) as pool:
        pid = pool.workers[0].process.process.pid
        assert pool.judge([wrong, right]) == [first[4], first[0]]
        assert (pool.judged, pool.repeated) == (0, 2)
        os.kill(pid, 0)
    monkeypatch.setattr(pool_module, "judge_version", lambda: "another")
    with EvaluationPool(options) as pool:
        assert pool.judge([wrong])[0].outcome is Outcome.incorrect
        assert (pool.judged, pool.repeated) == (1, 0), "another judge's evaluation is not known"


@pytest.mark.lost
def test_a_lost_worker_costs_one_evaluation(options, asked):
    right, _, wrong, other = asked
    with EvaluationPool(options) as pool:
        pool.open([right.task])
        worker = pool.workers[0]
        # Killed while it judges: when the first answer of this round is asked for.
        stopped = threading.Event()
        once = worker._judged

        def judged(environment, candidate, tier):
            if not stopped.is_set():
                stopped.set()
                os.kill(worker.process.process.pid, signal.SIGKILL)
            return once(environment, candidate, tier)

        worker._judged = judged
        found = pool.judge([right, wrong, other])
        assert found[0] is None
        assert [one.outcome for one in found[1:]] == [Outcome.incorrect, Outcome.correct]
        assert (pool.judged, pool.void) == (3, 1)
        lines = (options.out / "evaluations.jsonl").read_text().splitlines()
        assert len(lines) == 2, "what is void is not kept for another start"
        # Asked for again it is judged, though the worker has died meanwhile; what loses the judge again is at fault.
        os.kill(worker.process.process.pid, signal.SIGKILL)
        assert pool.judge([right])[0].outcome is Outcome.correct
        found = []
        for _ in range(3):
            stopped.clear()
            found += pool.judge([replace(right, tier=Tier.full)])
        assert found[0] is None and found[1].outcome is Outcome.crashed and found[2] is found[1]
        assert (pool.judged, pool.void) == (6, 2)


def test_without_a_worker_it_says_so(options, asked):
    with EvaluationPool(options) as pool:
        worker = pool.workers[0]
        worker.process.python = "/nowhere/python"
        worker.process.kill()
        with pytest.raises(DeviceError, match="no worker is left to judge: this machine: /nowhere/python"):
            pool.judge([asked[0], asked[3]])


@pytest.mark.timed
def test_bandwidths_are_measured_once_and_a_noisy_machine_keeps_its_own(tmp_path):
    cache, own = tmp_path / "cache", tmp_path / "own"
    worker, cancel = WorkerClient(sys.executable, log=tmp_path / "log"), threading.Event()
    try:
        where = folder_with_bandwidth(detect("cpu"), worker, cache, own, cancel)
        found = known_ceilings(detect("cpu"), where)
        assert where in (cache, own) and found.copy_bandwidth > 0
        worker.kill()
        assert folder_with_bandwidth(detect("cpu"), worker, cache, own, cancel) == where
    finally:
        worker.kill()
