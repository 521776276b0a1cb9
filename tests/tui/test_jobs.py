"""Jobs that outlive the application, in hosts that end at bad moments: the real host with a tiny job."""

from __future__ import annotations

import pytest

from kernel_assistant.session.client import Client
from kernel_assistant.session.prepare import prepare
from kernel_assistant.store import JobState, Store
from tests.session.kept import add_cancelled
from tests.tui.driving import opened, press, ready, shown, until, until_gone

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("tiny_host")]


def states(settings):
    return {row.id: row.state for row in Client(settings).jobs()}


async def test_leaving_a_job_in_the_host_and_finding_it_again(steered, settings):
    project = steered("wait").parent
    async with ready(project, "s", sees="started on") as pilot:
        await press(pilot, "q", sees="leave")
        await press(pilot, "enter", sees=lambda: not pilot.app.is_running)
    assert pilot.app.return_code == 0
    assert states(settings) == {"1": JobState.running}

    async with opened(project) as pilot:
        await until(pilot, "1 Gate", "started on")
        await press(pilot, "x", sees="ended: cancelled")
    assert states(settings) == {"1": JobState.cancelled}


async def test_staying_and_cancelling_when_asked(steered, settings):
    async with ready(steered("wait").parent, "s", sees="started on") as pilot:
        for way_back in ("escape", "s"):
            await press(pilot, "q", sees="leave")
            await pilot.press(way_back)
            await until_gone(pilot, "leave it")
        await press(pilot, "q", sees="leave")
        await press(pilot, "c", sees=lambda: not pilot.app.is_running)
    await_end = Client(settings).attach("1")
    assert [type(event).__name__ for event in await_end][-1] == "JobFinished"
    assert states(settings) == {"1": JobState.cancelled}


async def test_two_terminals_watch_one_job(steered):
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


async def test_jobs_in_tabs_wait_for_each_other(steered):
    project = steered("wait", "a.py").parent
    path = steered("wait", "b.py")
    path.write_text(path.read_text().replace("Gate", "Other"))
    (project / "model.py").unlink()
    async with opened(project) as pilot:
        await until(pilot, "Gate", "Other")
        await press(pilot, "s", sees=("1 Gate", "started on"))
        await press(pilot, "1", "down", "s", sees=("2 Other", "1 jobs before it"))
        await press(pilot, "left_square_bracket", sees="a.py:Gate")
        await press(pilot, "x", sees="ended: cancelled")
        await press(pilot, "K", sees=("started on", "b.py:Other"))
        assert "a.py:Gate" not in shown(pilot.app)
        await press(pilot, "x", sees="ended: cancelled")


@pytest.mark.lost
async def test_a_host_that_is_killed_is_told_of_and_its_job_goes_on(tiny_host, steered):
    async with ready(steered("tick 500").parent, "s", sees="turn 1") as pilot:
        tiny_host.kill()
        tiny_host.wait()
        await until(pilot, "session host")
        # The host that comes instead is the real one, which goes on with the job as its own.
        await until(pilot, "going on")
        await until(pilot, lambda: "ended:" in shown(pilot.app) or "failed:" in shown(pilot.app))


async def test_a_host_that_died_before_leaves_a_job_to_go_on_with(tiny_host, start_host, steered, settings):
    project = steered("wait").parent
    path = project / "model.py"
    Client(settings).submit(*prepare(f"{path}:Gate", settings))
    tiny_host.kill()
    tiny_host.wait()
    async with opened(project) as pilot:
        await until(pilot, "1 Gate (interrupted)", "queued for cpu")
        start_host("tiny_host.py")
        await press(pilot, "g", sees="going on")
        await press(pilot, "x", sees="ended: cancelled")


async def test_a_job_that_fails_says_why_and_what_to_do(steered):
    async with ready(steered("fail").parent, "s", sees=("failed: no compiler", "install one")):
        pass


async def test_a_message_that_nobody_reads_is_not_lost(steered):
    async with ready(steered("wait").parent, "s", sees="started on") as pilot:
        await pilot.press("m", *"use tiles", "enter")
        await until(pilot, "job 1 reads nothing: its kernels are the generator's", "use tiles")
        await pilot.press("escape")
        await press(pilot, "x", sees="ended: cancelled")


async def test_what_a_cancelled_job_kept_is_measured_in_full_by_a_key(steered, settings, tmp_path):
    path = steered("tick 1")
    store = Store(settings.state_dir)
    _, candidate = add_cancelled(store, path, settings, tmp_path)
    async with ready(path.parent) as pilot:
        await press(pilot, "f", sees="ended: ")
    done = store.job("2")
    assert done.options.candidate is not None and done.options.candidate.hash() == candidate.hash()
