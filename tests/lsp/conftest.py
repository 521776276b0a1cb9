"""A workspace, a session host of its own, and editors that end with the test."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio

from kernel_assistant.config import resolve
from kernel_assistant.session.client import Client
from kernel_assistant.store import JobOptions, JobState, Store
from tests.common import hosts, results
from tests.lsp.editor import MODEL, Editor

HOSTS = Path(__file__).parent.parent / "session"


@pytest.fixture
def home(own_state, monkeypatch):
    monkeypatch.setenv("KERNEL_ASSISTANT_TARGET", "cpu")
    yield own_state
    Client(resolve()[0]).shutdown()


@pytest.fixture
def settings(home):
    return resolve()[0]


@pytest.fixture
def workspace(home):
    folder = home / "ein Projekt mit Umlaut ä 🙂"
    folder.mkdir()
    return folder


@pytest.fixture
def model(workspace):
    path = workspace / "model.py"
    path.write_text(MODEL)
    return path


@pytest.fixture
def start_host(settings):
    """A function that starts a host of tests/session, given its file's name."""
    started = []

    def start(name):
        child = hosts.start_host(HOSTS / name, settings)
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()


@pytest_asyncio.fixture
async def start_editor(workspace):
    """A function: folders, a file to open with its text, and options → an editor with a running server."""
    started = []

    async def start(*folders, shows=None, text=None, **more):
        editor = Editor()
        started.append(editor)
        await editor.start(folders or (workspace,), **more)
        if shows is not None:
            editor.open(shows, text)
        return editor

    yield start
    for editor in started:
        await editor.close()


@pytest.fixture
def tiny_host(start_host):
    """A host whose jobs follow the instruction in the first line of their file."""
    return start_host("tiny_host.py")


@pytest_asyncio.fixture
async def editor(start_editor, model, improved):
    """An editor that shows `model`; job 1 has improved its class Gate."""
    improved(model, MODEL)
    editor = await start_editor(shows=model)
    await editor.until_lens(model, "verified")
    return editor


@pytest_asyncio.fixture
async def applied(editor, model):
    """That editor, after the kernels of Gate were applied and the file was saved."""
    await editor.apply(model)
    return editor


@pytest.fixture
def improved(settings, tmp_path):
    """A function: a file and its text → the number of a job that improved its class Gate. The kernels cannot be run."""
    from kernel_assistant.source.build import build_task

    def add(path, text, class_name="Gate"):
        store = Store(settings.state_dir)
        task = build_task(f"{path}:{class_name}", target="cpu", numerics="kernelbench", text=text)
        row = store.add_job(task, JobOptions(), "cpu:0")
        store.mark_running(row.id)
        artifacts = write_result(settings.jobs_dir / row.id / "result", task)
        result = results.result(task=task.name, best=results.best(), artifacts={"job": row.id, **artifacts})
        store.mark_ended(row.id, JobState.done, result=result)
        store.close()
        return row.id

    return add


def write_result(folder, task):
    """Writes a result in the form in which a job leaves it, with one elementwise kernel."""
    from kernel_assistant.records import Candidate, Launch, Node, OpGraph, Plan, TensorSpec
    from kernel_assistant.records.candidate import BufferSpec
    from kernel_assistant.records.graph import GraphInput
    from kernel_assistant.session.artifacts import write_result as write
    from kernel_assistant.targets.base import DeviceFacts
    from tests.session.episodes import correct, timing

    x0, out0 = (BufferSpec(name=name, dtype="f32", shape=("B", "64")) for name in ("x0", "out0"))
    launch = Launch(symbol="gate", args=(("x", "x0"), ("out", "out0"), ("n", "B*64")))
    plan = Plan(target="cpu", dims=("B",), inputs=(x0,), outputs=(out0,), launches=(launch,), schedule="rows")
    candidate = Candidate(plan=plan, sources={"gate.cpp": "// not for running\n"}, origin="test")
    rows = TensorSpec(dtype="f32", shape=("B", "64"))
    relu = Node(name="relu", op="relu.default", args=("%x0",), spec=rows)
    graph = OpGraph(dims={"B": 8}, inputs=(GraphInput(name="x0", spec=rows),), nodes=(relu,), outputs=("relu",))
    spec = {"dtype": "f32", "shape": ["B", "64"], "strides": None}
    facts = {
        "attributes": {"": {"(class)": task.class_name}},
        "inputs": [spec],
        "ranges": {"B": [1, 5000]},
        "call": {"args": ["x0"], "kwargs": {}},
        "result": "single",
        "versions": {},
    }
    judged = {"candidate": candidate, "evaluation": correct(timing(), candidate.hash()), "trajectory": None}
    device = DeviceFacts(target="cpu", name="test", arch="x86-64-avx2")
    binaries = {"kernels.x86-64-avx2.so": b"not for running"}
    return write(folder, task=task, graph=graph, device=device, facts=facts, binaries=binaries, **judged)
