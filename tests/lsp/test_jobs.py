"""Jobs as editors see them: queues, other front ends, crashes, progress, trust, settings. The jobs do little work."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from kernel_assistant.records import JobOutcome, encode
from kernel_assistant.session.prepare import prepare
from kernel_assistant.store import JobKind, JobState, Store
from tests.common import results
from tests.lsp.editor import MODEL
from tests.session.tiny_host import step

pytestmark = pytest.mark.asyncio


def write(workspace, name, first_line):
    """A function that writes a file whose job follows the instruction in its first line
    (tests/session/tiny_host.py).
    """
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


async def test_what_is_said_to_a_running_job_is_in_its_transcript(start_editor, start_host, workspace, monkeypatch):
    monkeypatch.setenv("KERNEL_ASSISTANT_POLICY", "model")
    monkeypatch.setenv("KERNEL_ASSISTANT_ENDPOINT", "http://127.0.0.1:9")  # reads more than once, for all that is known
    start_host("tiny_host.py")
    path = write(workspace, "a.py", "hear")
    editor = await start_editor()
    editor.open(path)
    job = (await editor.command("optimize", path, "Gate"))["job"]
    await editor.until_job(job, "running")
    begun = await editor.command("transcript", job=job)
    assert "queued: a.py:Gate" in begun["text"] and not begun["ended"]
    await editor.command("say", path, "Gate", job=job, words="use shared memory")
    await editor.until_job(job, "finished")
    later = await editor.command("transcript", job=job, **{"from": begun["seen"]})
    assert "> use shared memory" in later["text"] and "queued" not in later["text"] and later["ended"]
    assert (await editor.command("transcript", job=job))["text"].endswith(later["text"])
    with pytest.raises(JsonRpcException, match="does not run"):
        await editor.command("say", job=job, words="too late")
    with pytest.raises(JsonRpcException, match="nothing to say"):
        await editor.command("say", job=job, words=" ")


async def test_the_same_work_is_one_job_in_two_windows_whoever_began_it(start_editor, start_host, workspace):
    start_host("tiny_host.py")
    path = write(workspace, "a.py", "wait")
    one, two = await start_editor(), await start_editor()
    one.open(path)
    two.open(path)
    job = (await one.command("optimize", path, "Gate"))["job"]
    found = await two.until_job(job, "running")
    assert found["class"] == "Gate"
    await two.until_lens(path, "Cancel")
    assert (await two.command("optimize", path, "Gate"))["joined"]
    await two.command("cancel", job=job)
    await one.until_job(job, "cancelled")


@pytest.mark.lost
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


@pytest.mark.parametrize("of", ["neovim_v0.11.0", "neovim_v0.7.0", "emacs_v29.1"])
async def test_editors_without_notifications_of_their_own_are_told_how_a_job_ended(
    start_editor, start_host, workspace, of
):
    start_host("tiny_host.py")
    editor = await start_editor(of=of, options={})
    for name, first_line, said in (
        ("a.py", "tick 1", "Gate: no candidate"),
        ("b.py", "fail", "Gate: no compiler; install one"),
    ):
        path = write(workspace, name, first_line)
        editor.open(path)
        await editor.command("optimize", path, "Gate")
        await editor.until_message(said)
    told = [one for one in editor.client.messages if one.message.startswith("Gate: ")]
    assert [one.type for one in told] == [types.MessageType.Info, types.MessageType.Error]


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


async def test_the_first_lens_after_a_restart_is_right_and_the_job_goes_on(
    start_editor, start_host, workspace, improved
):
    start_host("tiny_host.py")
    running, applied = write(workspace, "a.py", "wait"), workspace / "b.py"
    applied.write_text(MODEL)
    improved(applied, MODEL)
    editor = await start_editor()
    editor.open(running)
    editor.open(applied)
    job = (await editor.command("optimize", running, "Gate"))["job"]
    await editor.until_job(job, "running")
    await editor.command("apply", applied, "Gate")
    editor.save(applied)
    editor.client._server.send_signal(signal.SIGTERM)
    await editor.client._server.wait()
    again = await start_editor()
    for path in (running, applied):
        again.open(path)
    assert (await again.titles(applied))[1:3] == ["Kernels", "Undo"]
    assert (await again.titles(running))[1:3] == ["Transcript", "Cancel"]
    await again.command("cancel", job=job)


async def test_what_a_cancelled_job_kept_is_verified_in_full(start_editor, start_host, workspace, settings):
    start_host("tiny_host.py")
    path = write(workspace, "a.py", "tick 1")
    kept = workspace / "kept"
    (kept / "sources").mkdir(parents=True)
    (candidate,) = step(1).candidates
    (kept / "plan.json").write_bytes(encode(candidate.plan))
    (kept / "sources/f.cpp").write_text(candidate.sources["f.cpp"])
    store = Store(settings.state_dir)
    row = store.add_job(*prepare(f"{path}:Gate", settings), "cpu")
    cancelled = results.result(outcome=JobOutcome.cancelled, artifacts={"plan.json": str(kept / "plan.json")})
    store.mark_ended(row.id, JobState.cancelled, result=cancelled)
    editor = await start_editor()
    editor.open(path)
    titles = await editor.until_lens(path, "Verify in full")
    assert titles == ["Optimize with Kernel Assistant", f"Verify in full (job {row.id})"]
    assert f"Verify in full what job {row.id} found for Gate" in [one.title for one in await editor.actions(path, 6)]
    job = (await editor.command("confirm", path, "Gate"))["job"]
    await editor.until_job(job, "finished")
    done = store.job(job)
    assert (done.options.kind, done.task) == (JobKind.optimize, row.task)
    assert done.options.candidate is not None and done.options.candidate.hash() == candidate.hash()
