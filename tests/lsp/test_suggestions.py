"""A model's suggestions in CUDA files, through the server: labelled until they have passed, and requested in another
process.
"""

from __future__ import annotations

import asyncio
import threading

import psutil
import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from kernel_assistant.config import resolve
from kernel_assistant.policy.client import Request
from kernel_assistant.records import BufferSpec, Candidate, JobOutcome, Launch, Plan
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.registry import SHIPPED_NAME
from kernel_assistant.source.build import build_task
from kernel_assistant.store import JobOptions, JobState, Store
from kernel_assistant_lsp.features.ghost import LABEL
from kernel_assistant_lsp.model_process import SuggestionWriter
from tests.common import results
from tests.policy.endpoint import fails, says, served

pytestmark = pytest.mark.asyncio

CUDA = "__global__ void twice(float* x) {\n    int i = threadIdx.x;\n    \n}\n"
CODE = "x[i] *= 2;"
ROW, OUT = (BufferSpec(name=name, dtype="f32", shape=("N",)) for name in ("x", "y"))
LAUNCH = Launch(symbol="twice", args=(("x", "x"), ("y", "y")), grid=("1", "1", "1"), block=("32", "1", "1"))
PLAN = Plan(target="cuda", dims=("N",), inputs=(ROW,), outputs=(OUT,), launches=(LAUNCH,))


@pytest.fixture
def endpoint(monkeypatch, home):
    with served() as server:
        monkeypatch.setenv("KERNEL_ASSISTANT_ENDPOINT", server.url)
        yield server


@pytest.fixture
def kernel(workspace):
    (workspace / "plan.json").write_text("{}")
    path = workspace / "kernel.cu"
    path.write_text(CUDA)
    return path


async def words(editor, path):
    return [item.insert_text for item in await editor.completions(path, 2, 4)]


@pytest.mark.programs
@pytest.mark.slow
async def test_two_windows_label_a_continuation_until_it_has_passed(
    start_editor, endpoint, kernel, model, settings, workspace
):
    endpoint.answers += [says({"content": CODE})] * 3
    one, two = await start_editor(), await start_editor()
    for editor in (one, two):
        editor.open(kernel)
        assert await words(editor, kernel) == [f"{CODE}  {LABEL}"]
    whole = CUDA.replace("    \n}", f"    {CODE}\n}}")
    candidate = Candidate(plan=PLAN, sources={"a.cu": whole})
    store = Store(settings.state_dir)
    task = build_task(f"{model}:Gate", target="cpu", numerics="kernelbench")
    row = store.add_job(task, JobOptions(candidate=candidate), "cpu:0")
    store.mark_running(row.id)
    store.mark_ended(row.id, JobState.done, result=results.result(target="cuda", outcome=JobOutcome.no_measurable_gain))
    store.close()
    assert await words(two, kernel) == [CODE]


@pytest.mark.programs
@pytest.mark.slow
async def test_clients_of_models_are_loaded_in_another_process(start_editor, endpoint, kernel):
    editor = await start_editor(shows=kernel)
    server = psutil.Process(editor.client._server.pid)
    assert server.children() == []
    endpoint.answers += [says({"content": CODE}), fails(403), says({"content": CODE})]
    assert await words(editor, kernel) == [f"{CODE}  {LABEL}"]
    (child,) = server.children()
    assert not any("pydantic_core" in mapped.path for mapped in server.memory_maps())
    assert any("pydantic_core" in mapped.path for mapped in child.memory_maps())
    assert await words(editor, kernel) == []
    assert await words(editor, kernel) == [f"{CODE}  {LABEL}"] and server.children() == [child]
    endpoint.answers.append(says({"content": CODE}))
    child.kill()
    assert await words(editor, kernel) == [f"{CODE}  {LABEL}"]
    (again,) = server.children()
    await editor.close()
    assert psutil.wait_procs([again], timeout=60)[1] == []


async def test_a_model_that_knows_tasks_alone_is_not_asked_to_continue_files():
    question = Request(messages=(Message(role="user", content=CUDA),), max_tokens=32)
    settings = resolve(None, {"model": SHIPPED_NAME})[0]
    assert "whole kernels for a class" in SuggestionWriter().answer(settings, question, lambda: False)["cause"]


@pytest.mark.parametrize("progress", ["client", ""])
async def test_why_nothing_is_suggested_in_a_cuda_file_is_said_once(start_editor, kernel, progress):
    editor = await start_editor(options={"progress": progress})
    alone = kernel.parent / "other" / "kernel.cu"
    alone.parent.mkdir()
    alone.write_text(CUDA)
    for path in (kernel, alone, kernel.parent / "kernel.txt"):
        editor.open(path, CUDA)
        assert [await words(editor, path) for _ in range(2)] == [[], []]
    said = [one["message"] for one in editor.unsuggested] + [one.message for one in editor.client.messages]
    assert len(said) == 2 and "whole kernels for a class" in said[0] and "no plan.json" in said[1]


async def test_typing_on_ends_the_reply_and_the_process_stays(start_editor, endpoint, kernel):
    begun, ended = threading.Event(), threading.Event()

    def slow(request):
        request.begin()
        begun.set()
        while not ended.wait(0.02):
            try:
                request.event({"choices": [{"index": 0, "delta": {"content": "x"}}]})
            except OSError:
                ended.set()

    editor = await start_editor(shows=kernel)
    server = psutil.Process(editor.client._server.pid)
    endpoint.answers += [slow, says({"content": CODE})]
    first = asyncio.create_task(editor.completions(kernel, 2, 4))
    assert await asyncio.to_thread(begun.wait, 20)
    (child,) = server.children()
    (number,) = editor.client.protocol._request_futures
    editor.client.cancel_request(types.CancelParams(id=number))
    assert await asyncio.to_thread(ended.wait, 20)
    assert await words(editor, kernel) == [f"{CODE}  {LABEL}"]
    assert server.children() == [child]
    with pytest.raises(JsonRpcException):
        await first
