"""A worker of this machine that dies while it judges."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace

import pytest

from kernel_assistant_training.evaluation.worker import CandidateJudged, TaskOpened
from kernel_assistant_training.ppo.pool.local_host import LocalHost
from tests.pool.hosts import RIGHT, listening, outcomes

pytestmark = pytest.mark.lost


@pytest.mark.slow
@pytest.mark.usefixtures("own_templates")
def test_worker_that_dies_costs_the_evaluation_that_it_was_at(fleet, jobs, tmp_path):
    stages, killed = [(0, None), (1, TaskOpened), (2, CandidateJudged)], []

    def strike(host):
        stages.pop(0)
        killed.append(host.workers[0].process.process.pid)
        os.kill(killed[-1], signal.SIGKILL)

    def here(options):
        host = LocalHost(replace(options, python=sys.executable, logs=tmp_path))
        begin = host.judge

        def judge(number, job):
            if stages and stages[0][1] is None:
                strike(host)
            yield from begin(number, job)

        host.judge = judge
        return host

    def heard(host, answer):
        if stages and at() == stages[0][0] and isinstance(answer, stages[0][1]):
            strike(host)

    def at():
        """The number of the job at which the only worker is."""
        return next((number for number, job in enumerate(jobs) if len(job.found) < len(job.candidates)), None)

    made, lines = fleet(listening(here, heard))
    made.run(jobs, lambda job, index: None)
    assert len(set(killed)) == 3
    assert outcomes(jobs[0]) == RIGHT, "nothing was judged yet"
    assert outcomes(jobs[1]) in (RIGHT, [None, RIGHT[1]])
    assert outcomes(jobs[2]) in (RIGHT, [RIGHT[0], None])
    assert lines == [], "the machine is not lost"
