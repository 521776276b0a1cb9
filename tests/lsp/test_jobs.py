"""Jobs as editors see them: queues, other front ends, crashes, progress, trust, settings. The jobs do little."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from kernel_assistant.session.client import Client
from kernel_assistant.session.prepare import prepare
from tests.lsp.editor import MODEL

pytestmark = pytest.mark.asyncio


def write(workspace, name, first_line):
    """A file whose job does what its first line says (tests/session/tiny_host.py)."""
    path = workspace / name
    path.write_text(f"# {first_line}\n{MODEL}")
    return path


async def test_jobs_wait_for_each_other_and_can_be_cancelled(start_editor, start_host, workspace):
    start_host("tiny_host.py")
    first, second = write(workspace, "a.py", "wait"), write(workspace, "b.py", "wait")
    editor = await start_editor()
    jobs = []
    for path in (first, second):
        editor.open(path)
        jobs.append((await editor.command("optimize", path, "Gate"))["job"])
    await editor.until_job(jobs[0], "running")
    waiting = await editor.until_job(jobs[1], "queued")
    assert waiting["message"] == "waiting for 1 other job"
    assert {one["job"] for one in await editor.command("jobs") if one["active"]} == set(jobs)
    (disabled,) = [one for one in await editor.actions(first, 6) if one.title.startswith("Optimize")]
    assert disabled.disabled.reason == f"job {jobs[0]} is at it"
    await editor.command("cancel", job=jobs[1])
    await editor.until_job(jobs[1], "cancelled")
    await editor.command("cancel", job=jobs[0])
    await editor.until_job(jobs[0], "cancelled")
    assert await editor.until_lens(first, "Optimize with") == ["Optimize with Kernel Assistant"]


async def test_the_same_work_is_one_job_in_two_windows(start_editor, start_host, workspace):
    start_host("tiny_host.py")
    path = write(workspace, "a.py", "wait")
    one, two = await start_editor(), await start_editor()
    one.open(path)
    two.open(path)
    job = (await one.command("optimize", path, "Gate"))["job"]
    found = await two.until_job(job, "running")
    assert found["class"] == "Gate"
    assert (await two.command("optimize", path, "Gate"))["joined"]
    await two.command("cancel", job=job)
    await one.until_job(job, "cancelled")


async def test_a_job_that_another_front_end_began_is_found(start_editor, start_host, workspace, settings):
    start_host("tiny_host.py")
    path = write(workspace, "a.py", "wait")
    editor = await start_editor()
    editor.open(path)
    client = Client(settings)
    job = client.submit(*prepare(f"{path}:Gate", settings))["job"]
    await editor.until_job(job, "running", seconds=20)
    await editor.until_lens(path, "Cancel")
    client.cancel(job)
    await editor.until_job(job, "cancelled")


@pytest.mark.slow
async def test_a_host_that_is_killed_comes_back_with_its_job(start_editor, start_host, workspace):
    child = start_host("tiny_host.py")
    path = write(workspace, "a.py", "tick 100")
    editor = await start_editor()
    editor.open(path)
    job = (await editor.command("optimize", path, "Gate"))["job"]
    await editor.until_job(job, "running")
    child.kill()
    child.wait()
    # The host that the server starts is the real one: it goes on with the job as its own.
    end = await editor.until_job(job, "finished", "failed", "cancelled")
    assert any(event["message"] == "going on" for event in editor.events), editor.events[-3:]
    assert end["percent"] == 100


async def test_a_job_that_fails_says_why_and_what_to_do(start_editor, start_host, workspace):
    start_host("tiny_host.py")
    path = write(workspace, "a.py", "fail")
    editor = await start_editor()
    editor.open(path)
    job = (await editor.command("optimize", path, "Gate"))["job"]
    end = await editor.until_job(job, "failed")
    assert (end["message"], end["nextStep"]) == ("no compiler", "install one")
    await editor.until_lens(path, "failed: no compiler · try again")


async def test_progress_of_the_protocol_with_cancel(start_editor, start_host, workspace):
    start_host("tiny_host.py")
    path = write(workspace, "a.py", "wait")
    editor = await start_editor(of="neovim_v0.11.0", options={})
    editor.open(path)
    job = (await editor.command("optimize", path, "Gate"))["job"]
    token = f"kernel-assistant/job/{job}"

    async def kinds(wanted):
        for _ in range(200):
            reports = [one.kind for one in editor.client.progress_reports.get(token, ())]
            if wanted in reports:
                return reports
            await asyncio.sleep(0.05)
        raise AssertionError(reports)

    assert (await kinds("begin"))[0] == "begin"
    editor.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token=token))
    reports = await kinds("end")
    assert reports.count("begin") == reports.count("end") == 1 and editor.events == []


async def test_an_untrusted_workspace_runs_nothing(start_editor, model, settings):
    editor = await start_editor(options={"progress": "client", "trusted": False})
    editor.open(model)
    assert not await editor.lenses(model) and not await editor.actions(model, 5)
    with pytest.raises(JsonRpcException, match="not trusted"):
        await editor.command("optimize", model, "Gate")
    await asyncio.sleep(0.5)
    assert not settings.state_dir.exists()
    params = types.DidChangeConfigurationParams(settings={"kernelAssistant": {"trusted": True}})
    editor.client.workspace_did_change_configuration(params)
    await editor.until_lens(model, "Optimize")


async def test_settings_come_from_the_editor_and_never_all_of_them_from_a_repository(start_editor, workspace, model):
    (workspace / "pyproject.toml").write_text('[tool.kernel-assistant]\nsandbox = "none"\nbudget = 77\n')
    other = workspace.parent / "other"
    other.mkdir()
    there = other / "model.py"
    there.write_text(model.read_text())
    editor = await start_editor(workspace, other)
    editor.open(model)
    editor.open(there)
    await editor.until_lens(model, "Optimize")
    await editor.until_message("a project cannot set 'sandbox'")
    editor.client.set_configuration({"lens": False}, section="kernelAssistant", scope_uri=other.as_uri())
    editor.client.set_configuration({"target": "tpu"}, section="kernelAssistant", scope_uri=workspace.as_uri())
    editor.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings=None))
    for _ in range(100):
        if await editor.titles(there) == []:
            break
        await asyncio.sleep(0.1)
    assert await editor.titles(there) == [] and await editor.titles(model)
    with pytest.raises(JsonRpcException, match="target = 'tpu' does not fit"):
        await editor.command("optimize", model, "Gate")


@pytest.mark.parametrize("watches", [True, False])
async def test_what_is_taken_away_outside_is_noticed(start_editor, model, improved, watches):
    def change(capabilities):
        capabilities.workspace.did_change_watched_files.dynamic_registration = watches

    improved(model, MODEL)
    editor = await start_editor(change=change)
    editor.open(model)
    await editor.until_lens(model, "verified")
    await editor.command("apply", model, "Gate")
    editor.save(model)
    await editor.until_lens(model, "Undo")
    manifest = model.parent / "model_kernels" / "manifest.json"
    os.rename(manifest, manifest.with_name("moved"))
    if watches:
        event = types.FileEvent(uri=manifest.as_uri(), type=types.FileChangeType.Deleted)
        editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams(changes=[event]))
    await editor.until_lens(model, "stale: its kernels cannot be read")


async def test_the_device_is_told_while_somebody_looks(start_editor, model):
    editor = await start_editor()
    editor.client.protocol.notify("kernelAssistant/watchStatus", {"on": True})
    for _ in range(100):
        if editor.statuses:
            break
        await asyncio.sleep(0.1)
    assert editor.statuses[0]["device"] and 0 < editor.statuses[0]["memory_used"] < editor.statuses[0]["memory_total"]
    editor.client.protocol.notify("kernelAssistant/watchStatus", {"on": False})
    await editor.lenses(model)
    seen = len(editor.statuses)
    await asyncio.sleep(2.5)
    assert len(editor.statuses) <= seen + 1


async def test_a_server_that_is_terminated_leaves_the_job_alone(start_editor, start_host, workspace):
    start_host("tiny_host.py")
    path = write(workspace, "a.py", "tick 40")
    editor = await start_editor()
    editor.open(path)
    job = (await editor.command("optimize", path, "Gate"))["job"]
    await editor.until_job(job, "running")
    editor.client._server.send_signal(signal.SIGTERM)
    await editor.client._server.wait()
    again = await start_editor()
    again.open(path)
    await again.until_lens(path, "no candidate")
