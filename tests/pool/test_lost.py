"""A worker of this machine that dies while it judges."""

from __future__ import annotations

import os
import signal

import pytest

from kernel_assistant_training.ppo.pool.events import CandidateJudged, JobBegan, TaskOpened
from kernel_assistant_training.ppo.pool.worker_group import WorkerGroup
from tests.pool.hosts import RIGHT, listening, outcomes

pytestmark = pytest.mark.lost


@pytest.mark.slow
@pytest.mark.usefixtures("own_templates")
def test_worker_that_dies_costs_the_evaluation_that_it_was_at(fleet, jobs, tmp_path):
    stages, killed = [JobBegan, TaskOpened, CandidateJudged], []

    def here(options, hear):
        return WorkerGroup(options, hear, tmp_path, tmp_path)

    def heard(host, event):
        if stages and isinstance(event, stages[0]) and event.job == 3 - len(stages):
            stages.pop(0)
            killed.append(host.workers[0].process.process.pid)
            os.kill(killed[-1], signal.SIGKILL)

    made, lines = fleet(listening(here, heard))
    made.run(jobs, lambda job: None)
    assert len(set(killed)) == 3
    assert outcomes(jobs[0]) == RIGHT, "nothing was judged yet"
    assert outcomes(jobs[1]) in (RIGHT, [None, RIGHT[1]])
    assert outcomes(jobs[2]) in (RIGHT, [RIGHT[0], None])
    assert lines == [], "the machine is not lost"
