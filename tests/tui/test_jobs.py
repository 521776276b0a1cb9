"""Jobs that outlive the application, in hosts that end at bad moments: the real host with a tiny job."""

from __future__ import annotations

import os
import signal

import pytest

from kernel_assistant.records import JobOutcome, encode
from kernel_assistant.session.client import Client
from kernel_assistant.session.prepare import prepare
from kernel_assistant.store import JobState, Store
from tests.common.results import result
from tests.session.tiny_host import step
from tests.tui.driving import opened, shown, until, until_gone

pytestmark = pytest.mark.asyncio


def states(settings):
    return {row.id: row.state for row in Client(settings).jobs()}


async def test_leaving_a_job_in_the_host_and_finding_it_again(start_host, steered, settings):
    start_host("tiny_host.py")
    project = steered("wait").parent
    async with opened(project) as pilot:
        await until(pilot, "Gate")
        await pilot.press("s")
        await until(pilot, "started on")
        await pilot.press("q")
        await until(pilot, "leave")
        await pilot.press("enter")
        await until(pilot, lambda: not pilot.app.is_running)
    assert pilot.app.return_code == 0
    assert states(settings) == {"1": JobState.running}

    async with opened(project) as pilot:
        await until(pilot, "1 Gate", "started on")
        await pilot.press("x")
        await until(pilot, "ended: cancelled")
    assert states(settings) == {"1": JobState.cancelled}


async def test_staying_and_cancelling_when_asked(start_host, steered, settings):
    start_host("tiny_host.py")
    async with opened(steered("wait").parent) as pilot:
        await until(pilot, "Gate")
        await pilot.press("s")
        await until(pilot, "started on")
        for way_back in ("escape", "s"):
            await pilot.press("q")
            await until(pilot, "leave")
            await pilot.press(way_back)
            await until_gone(pilot, "leave it")
        await pilot.press("q")
        await until(pilot, "leave")
        await pilot.press("c")
        await until(pilot, lambda: not pilot.app.is_running)
    await_end = Client(settings).attach("1")
    assert [type(event).__name__ for event in await_end][-1] == "JobFinished"
    assert states(settings) == {"1": JobState.cancelled}


async def test_two_terminals_watch_one_job(start_host, steered):
    start_host("tiny_host.py")
    project = steered("wait").parent
    async with opened(project) as one, opened(project) as two:
        await until(one, "Gate")
        await until(two, "Gate")
        await one.press("s")
        await until(one, "started on")
        await until(two, "1 Gate", "started on")
        await two.press("1", "s")
        await until(two, "is at it already")
        await two.press("x")
        await until(two, "ended: cancelled")
        await until(one, "ended: cancelled")


async def test_jobs_in_tabs_wait_for_each_other(start_host, steered):
    start_host("tiny_host.py")
    project = steered("wait", "a.py").parent
    path = steered("wait", "b.py")
    path.write_text(path.read_text().replace("Gate", "Other"))
    (project / "model.py").unlink()
    async with opened(project) as pilot:
        await until(pilot, "Gate", "Other")
        await pilot.press("s")
        await until(pilot, "1 Gate", "started on")
        await pilot.press("1", "down", "s")
        await until(pilot, "2 Other", "1 jobs before it")
        await pilot.press("left_square_bracket")
        await until(pilot, "a.py:Gate")
        await pilot.press("x")
        await until(pilot, "ended: cancelled")
        await pilot.press("K")
        await until(pilot, "started on", "b.py:Other")
        assert "a.py:Gate" not in shown(pilot.app)
        await pilot.press("x")
        await until(pilot, "ended: cancelled")


@pytest.mark.lost
async def test_a_host_that_is_killed_is_told_of_and_its_job_goes_on(start_host, steered, settings):
    host = start_host("tiny_host.py")
    async with opened(steered("tick 500").parent) as pilot:
        await until(pilot, "Gate")
        await pilot.press("s")
        await until(pilot, "turn 1")
        os.kill(host.pid, signal.SIGKILL)
        host.wait()
        await until(pilot, "session host")
        # The host that comes instead is the real one, which goes on with the job as its own.
        await until(pilot, "going on")
        await until(pilot, lambda: "ended:" in shown(pilot.app) or "failed:" in shown(pilot.app))


async def test_a_host_that_died_before_leaves_a_job_to_go_on_with(start_host, steered, settings):
    host = start_host("tiny_host.py")
    project = steered("wait").parent
    path = project / "model.py"
    Client(settings).submit(*prepare(f"{path}:Gate", settings))
    os.kill(host.pid, signal.SIGKILL)
    host.wait()
    async with opened(project) as pilot:
        await until(pilot, "1 Gate (interrupted)", "queued for cpu")
        start_host("tiny_host.py")
        await pilot.press("g")
        await until(pilot, "going on")
        await pilot.press("x")
        await until(pilot, "ended: cancelled")


async def test_a_job_that_fails_says_why_and_what_to_do(start_host, steered):
    start_host("tiny_host.py")
    async with opened(steered("fail").parent) as pilot:
        await until(pilot, "Gate")
        await pilot.press("s")
        await until(pilot, "failed: no compiler", "install one")


async def test_a_message_that_nobody_reads_is_not_lost(start_host, steered):
    start_host("tiny_host.py")
    async with opened(steered("wait").parent) as pilot:
        await until(pilot, "Gate")
        await pilot.press("s")
        await until(pilot, "started on")
        await pilot.press("m", *"use tiles", "enter")
        await until(pilot, "job 1 reads nothing: its kernels are the generator's", "use tiles")
        await pilot.press("escape")
        await pilot.press("x")
        await until(pilot, "ended: cancelled")


async def test_what_a_cancelled_job_kept_is_measured_in_full_by_a_key(start_host, steered, settings, tmp_path):
    start_host("tiny_host.py")
    path = steered("tick 1")
    (candidate,) = step(1).candidates
    (tmp_path / "plan.json").write_bytes(encode(candidate.plan))
    (tmp_path / "f.cpp").write_text(candidate.sources["f.cpp"])
    store = Store(settings.state_dir)
    row = store.add_job(*prepare(f"{path}:Gate", settings), "cpu")
    kept = result(outcome=JobOutcome.cancelled, artifacts={"plan.json": str(tmp_path / "plan.json")})
    store.mark_ended(row.id, JobState.cancelled, result=kept)
    async with opened(path.parent) as pilot:
        await until(pilot, "Gate")
        await pilot.press("f")
        await until(pilot, "ended: ")
    done = store.job("2")
    assert done.options.candidate is not None and done.options.candidate.hash() == candidate.hash()
