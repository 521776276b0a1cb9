"""A workspace, a session host of its own, and editors that end with the test."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio

from kernel_assistant.config import resolve
from kernel_assistant.session.client import Client
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
    """A function: folders and options → an editor with a running server."""
    started = []

    async def start(*folders, **more):
        editor = Editor()
        started.append(editor)
        return await editor.start(folders or (workspace,), **more)

    yield start
    for editor in started:
        await editor.close()


@pytest.fixture
def improved(settings, tmp_path):
    """A function: a file and its text → the number of a job that improved its class Gate. The kernels cannot be run."""
    from kernel_assistant.source.build import build_task
    from kernel_assistant.store import JobOptions, JobState, Store

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
    from kernel_assistant.records import (
        Candidate,
        Evaluation,
        Launch,
        Node,
        OpGraph,
        Outcome,
        Plan,
        Stage,
        TensorSpec,
        Tier,
        Timing,
    )
    from kernel_assistant.records.candidate import BufferSpec
    from kernel_assistant.records.graph import GraphInput
    from kernel_assistant.session.artifacts import write_result as write
    from kernel_assistant.targets.base import DeviceFacts

    plan = Plan(
        target="cpu",
        dims=("B",),
        inputs=(BufferSpec(name="x0", dtype="f32", shape=("B", "64")),),
        outputs=(BufferSpec(name="out0", dtype="f32", shape=("B", "64")),),
        launches=(Launch(symbol="gate", args=(("x", "x0"), ("out", "out0"), ("n", "B*64"))),),
        schedule="rows",
    )
    candidate = Candidate(plan=plan, sources={"gate.cpp": "// not for running\n"}, origin="test")
    rows = TensorSpec(dtype="f32", shape=("B", "64"))
    graph = OpGraph(
        dims={"B": 8},
        inputs=(GraphInput(name="x0", spec=rows),),
        nodes=(Node(name="relu", op="relu.default", args=("%x0",), spec=rows),),
        outputs=("relu",),
    )
    accuracy = results.accuracy_of(inputs_tried=8, shapes_tried=3)
    timing = Timing(
        candidate_ms=0.1,
        eager_ms=0.3,
        compile_ms=0.2,
        speedup_vs_eager=3.0,
        speedup_vs_compile=2.0,
        speedup_vs_compile_ci=(1.9, 2.1),
    )
    evaluation = Evaluation(
        candidate=candidate.hash(),
        tier=Tier.full,
        outcome=Outcome.correct,
        stage=Stage.profile,
        message="correct",
        accuracy=accuracy,
        timing=timing,
    )
    spec = {"dtype": "f32", "shape": ["B", "64"], "strides": None}
    facts = {
        "attributes": {"": {"(class)": task.class_name}},
        "inputs": [spec],
        "ranges": {"B": [1, 5000]},
        "call": {"args": ["x0"], "kwargs": {}},
        "result": "single",
        "versions": {},
    }
    return write(
        folder,
        task=task,
        graph=graph,
        device=DeviceFacts(target="cpu", name="test", arch="x86-64-avx2"),
        facts=facts,
        trajectory=None,
        candidate=candidate,
        evaluation=evaluation,
        binaries={"kernels.x86-64-avx2.so": b"not for running"},
    )
