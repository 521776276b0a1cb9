"""Jobs as editors see them: queues, other front ends, crashes, progress, trust, settings. The jobs do little work."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from kernel_assistant.store import JobKind, Store
from tests.lsp.editor import MODEL, until
from tests.session.kept import add_cancelled

pytestmark = pytest.mark.asyncio


def write(workspace, name, first_line):
    """A function that writes a file whose job follows the instruction in its first line
    (tests/session/tiny_host.py).
    """
    path = workspace / name
    path.write_text(f"# {first_line}\n{MODEL}")
    return path


@pytest.fixture
def begin(start_editor, tiny_host, workspace):
    """A function: first line of a file, and options of an editor → the editor, the file and the number of its job."""

    async def begin_job(first_line, **options):
        path = write(workspace, "a.py", first_line)
        editor = await start_editor(**options, shows=path)
        return editor, path, await editor.optimize(path)

    return begin_job


async def test_jobs_wait_for_each_other_and_can_be_cancelled(start_editor, tiny_host, workspace):
    first, second = write(workspace, "a.py", "wait"), write(workspace, "b.py", "wait")
    editor = await start_editor()
    for path in (first, second):
        editor.open(path)
    jobs = [await editor.optimize(path) for path in (first, second)]
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


async def test_what_is_said_to_a_running_job_is_in_its_transcript(begin, monkeypatch):
    monkeypatch.setenv("KERNEL_ASSISTANT_POLICY", "model")
    monkeypatch.setenv("KERNEL_ASSISTANT_ENDPOINT", "http://127.0.0.1:9")  # reads more than once, for all that is known
    editor, path, job = await begin("hear")
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


async def test_the_same_work_is_one_job_in_two_windows_whoever_began_it(begin, start_editor, workspace):
    two = await start_editor(shows=write(workspace, "a.py", "wait"))
    one, path, job = await begin("wait")
    assert (await two.until_job(job, "running"))["class"] == "Gate"
    await two.until_lens(path, "Cancel")
    assert (await two.command("optimize", path, "Gate"))["joined"]
    await two.command("cancel", job=job)
    await one.until_job(job, "cancelled")


@pytest.mark.lost
@pytest.mark.slow
async def test_a_host_that_is_killed_comes_back_with_its_job(begin, tiny_host):
    editor, _, job = await begin("tick 100")
    await editor.until_job(job, "running")
    tiny_host.kill()
    tiny_host.wait()
    # The host that the server starts is the real one: it goes on with the job as its own.
    end = await editor.until_job(job, "finished", "failed", "cancelled")
    assert any(event["message"] == "going on" for event in editor.events), editor.events[-3:]
    assert end["percent"] == 100


async def test_a_job_that_fails_says_why_and_what_to_do(begin):
    editor, path, job = await begin("fail")
    end = await editor.until_job(job, "failed")
    assert (end["message"], end["nextStep"]) == ("no compiler", "install one")
    await editor.until_lens(path, "failed: no compiler · try again")


async def test_progress_of_the_protocol_with_cancel(begin):
    editor, _, job = await begin("wait", of="neovim_v0.11.0", options={})
    token = f"kernel-assistant/job/{job}"

    def kinds():
        return [one.kind for one in editor.client.progress_reports.get(token, ())]

    await until(lambda: "begin" in kinds())
    assert kinds()[0] == "begin"
    editor.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token=token))
    await until(lambda: "end" in kinds())
    assert kinds().count("begin") == kinds().count("end") == 1 and editor.events == []


@pytest.mark.parametrize("of", ["neovim_v0.11.0", "neovim_v0.7.0", "emacs_v29.1"])
async def test_editors_without_notifications_of_their_own_are_told_how_a_job_ended(begin, workspace, of):
    editor, *_ = await begin("tick 1", of=of, options={})
    await editor.until_message("Gate: no candidate")
    path = write(workspace, "b.py", "fail")
    editor.open(path)
    await editor.optimize(path)
    await editor.until_message("Gate: no compiler; install one")
    told = [one for one in editor.client.messages if one.message.startswith("Gate: ")]
    assert [one.type for one in told] == [types.MessageType.Info, types.MessageType.Error]


async def test_an_untrusted_workspace_runs_nothing(start_editor, model, settings):
    editor = await start_editor(options={"progress": "client", "trusted": False}, shows=model)
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
    editor = await start_editor(workspace, other, shows=model)
    editor.open(there)
    await editor.until_lens(model, "Optimize")
    await editor.until_message("a project cannot set 'sandbox'")
    editor.client.set_configuration({"lens": False}, section="kernelAssistant", scope_uri=other.as_uri())
    editor.client.set_configuration({"target": "tpu"}, section="kernelAssistant", scope_uri=workspace.as_uri())
    editor.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings=None))

    async def hidden():
        return await editor.titles(there) == []

    await until(hidden)
    assert await editor.titles(model)
    with pytest.raises(JsonRpcException, match="target = 'tpu' does not fit"):
        await editor.command("optimize", model, "Gate")


@pytest.mark.parametrize("watches", [True, False])
async def test_what_is_taken_away_outside_is_noticed(start_editor, model, improved, watches):
    def change(capabilities):
        capabilities.workspace.did_change_watched_files.dynamic_registration = watches

    improved(model, MODEL)
    editor = await start_editor(change=change, shows=model)
    await editor.until_lens(model, "verified")
    await editor.apply(model)
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
    await until(lambda: editor.statuses)
    assert editor.statuses[0]["device"] and 0 < editor.statuses[0]["memory_used"] < editor.statuses[0]["memory_total"]
    editor.client.protocol.notify("kernelAssistant/watchStatus", {"on": False})
    await editor.lenses(model)
    seen = len(editor.statuses)
    await asyncio.sleep(2.5)
    assert len(editor.statuses) <= seen + 1


async def test_the_first_lens_after_a_restart_is_right_and_the_job_goes_on(begin, start_editor, workspace, improved):
    applied = workspace / "b.py"
    applied.write_text(MODEL)
    improved(applied, MODEL)
    editor, running, job = await begin("wait")
    editor.open(applied)
    await editor.until_job(job, "running")
    await editor.apply(applied)
    editor.client._server.send_signal(signal.SIGTERM)
    await editor.client._server.wait()
    again = await start_editor()
    for path in (running, applied):
        again.open(path)
    assert (await again.titles(applied))[1:3] == ["Kernels", "Undo"]
    assert (await again.titles(running))[1:3] == ["Transcript", "Cancel"]
    await again.command("cancel", job=job)


async def test_what_a_cancelled_job_kept_is_verified_in_full(start_editor, tiny_host, workspace, settings):
    path = write(workspace, "a.py", "tick 1")
    store = Store(settings.state_dir)
    row, candidate = add_cancelled(store, path, settings, workspace / "kept")
    editor = await start_editor(shows=path)
    titles = await editor.until_lens(path, "Verify in full")
    assert titles == ["Optimize with Kernel Assistant", f"Verify in full (job {row.id})"]
    assert f"Verify in full what job {row.id} found for Gate" in [one.title for one in await editor.actions(path, 6)]
    job = (await editor.command("confirm", path, "Gate"))["job"]
    await editor.until_job(job, "finished")
    done = store.job(job)
    assert (done.options.kind, done.task) == (JobKind.optimize, row.task)
    assert done.options.candidate is not None and done.options.candidate.hash() == candidate.hash()
