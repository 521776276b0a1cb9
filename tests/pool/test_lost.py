"""Machines and workers that die while they judge: what that costs, and who goes on."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from kernel_assistant.errors import DeviceError
from kernel_assistant_training.ppo.pool_events import Began, Judged, TaskOpened
from tests.pool.piped import Piped, outcomes

RIGHT = ["correct", "compile_error"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_templates")]


def test_worker_that_dies_costs_the_evaluation_that_it_was_at(fleet, jobs):
    one, stages, killed = Piped("one"), [Began, TaskOpened, Judged], []

    def heard(machine, event):
        if stages and isinstance(event, stages[0]) and event.job == 3 - len(stages):
            stages.pop(0)
            killed.append(one.kill_worker())

    one.heard = heard
    made, lines = fleet(one.member)
    made.run(jobs, lambda job: None)
    assert len({*killed} - {None}) == 3
    assert outcomes(jobs[0]) == RIGHT, "nothing was judged yet"
    assert outcomes(jobs[1]) in (RIGHT, [None, RIGHT[1]])
    assert outcomes(jobs[2]) in (RIGHT, [RIGHT[0], None])
    assert lines == [], "the machine is not lost"


def test_machine_that_dies_or_falls_silent(fleet, jobs):
    """The first is killed at its first answer, the second is stopped at its own: no end of its stream, no word."""
    one, two = Piped("one"), Piped("two", silent=5.0)
    made, lines = fleet(one.member, two.member)
    begun = {}

    def strike(machine, signal_number):
        def heard(_, event):
            if isinstance(event, Began):
                begun.setdefault(machine.name, []).append(event.job)
            if isinstance(event, TaskOpened):
                os.kill(machine.process.pid, signal_number)
                machine.heard = lambda machine, event: None

        return heard

    one.heard, two.heard = strike(one, signal.SIGKILL), strike(two, signal.SIGSTOP)
    stopped = two.process
    try:
        made.run(jobs, lambda job: None)
    finally:
        stopped.kill()
    # One evaluation each: what they were at. All else was judged by the first one, which came back.
    assert sum(outcomes(job).count(None) for job in jobs) == 2
    assert all(answer in (None, right) for job in jobs for answer, right in zip(outcomes(job), RIGHT, strict=True))
    assert [line for line in lines if line.startswith("one is lost: the connection was lost; void: 1 evaluation, ")]
    assert [line for line in lines if line.startswith("two is lost: it said nothing for 5 s; void: 1 evaluation, ")]
    assert "one: judges again" in lines


def test_no_machine_that_comes_back(fleet, jobs):
    """The round fails after its patience; what the machine had started is gone with it."""
    one = Piped("one")
    made, lines = fleet(one.member, patience=1.5)
    family = psutil.Process(one.process.pid).children(recursive=True)

    def heard(machine, event):
        one.python = "/bin/false"
        one.process.kill()

    one.heard = heard
    with pytest.raises(DeviceError, match="no worker is left to judge: one: ") as caught:
        made.run(jobs[:1], lambda job: None)
    assert "--pool" in caught.value.next_step
    assert len(lines) == 1
    assert psutil.wait_procs(family, timeout=20)[1] == []
