"""The terminal's knowledge of a project's classes: found, changed, deleted, ranked, with their last results."""

from __future__ import annotations

import shutil
import threading

import pytest
from msgspec.structs import replace

from kernel_assistant.config import resolve
from kernel_assistant.records import JobOutcome
from kernel_assistant.session.edits import find_job
from kernel_assistant.store import JobOptions, JobState, Store
from kernel_assistant.store.scans import ScanStore
from kernel_assistant_tui.project.module import matching, said
from kernel_assistant_tui.project.project import Project
from kernel_assistant_tui.project.watch import Watcher
from tests.common.results import best, result
from tests.common.tasks import task_of
from tests.session.test_program_gain import scan, scanned

GATE = "from torch import nn\n\n\nclass Gate(nn.Module):\n    def forward(self, x):\n        return x.relu()\n"


@pytest.fixture
def root(own_state):
    folder = own_state / "ein Projekt ä"
    (folder / "layers").mkdir(parents=True)
    (folder / "model.py").write_text(GATE)
    (folder / "layers/norm.py").write_text(GATE.replace("Gate", "Norm"))
    return folder


@pytest.fixture
def project(root):
    return Project(root, resolve()[0])


def names(modules):
    return [f"{one.where}:{one.name}" for one in modules]


def gate_of(modules):
    (gate,) = (one for one in modules if one.name == "Gate")
    return gate


def test_classes_are_found_by_file_and_line(project, root):
    (root / "model.py").write_text(GATE + GATE.replace("Gate", "Other"))
    (root / "plain.py").write_text("class Plain:\n    pass\n")
    (root / "broken.py").write_text("class Broken(nn.Module:\n")
    (root / "binary.py").write_bytes(b"\xff\xfe\x00 torch class ")
    for skipped in (".hidden", "node_modules", "env"):
        (root / skipped).mkdir()
        (root / skipped / "model.py").write_text(GATE)
    (root / "env/pyvenv.cfg").touch()
    assert names(project.read()) == ["layers/norm.py:Norm", "model.py:Gate", "model.py:Other"]
    assert not project.has_store


def test_one_file_alone(root):
    assert names(Project(root / "model.py", resolve()[0]).read()) == ["model.py:Gate"]


def test_only_what_changed_is_read_again(project, root):
    project.read()
    (root / "model.py").write_text(GATE.replace("Gate", "Turnstile"))
    (root / "layers/norm.py").unlink()
    assert names(project.read([])) == ["layers/norm.py:Norm", "model.py:Gate"]
    assert names(project.read([root / "model.py"])) == ["layers/norm.py:Norm", "model.py:Turnstile"]
    assert names(project.read([root / "layers/norm.py"])) == ["model.py:Turnstile"]


def test_a_folder_that_is_gone_takes_its_classes_along(project, root):
    project.read()
    shutil.rmtree(root / "layers")
    assert names(project.read([root])) == ["model.py:Gate"]


def test_results_come_and_become_stale(project, root):
    path = root / "model.py"
    store = Store(resolve()[0].state_dir)
    task = task_of(path, GATE, "Gate")
    row = store.add_job(task, JobOptions(), "cpu:0")
    gate = gate_of(project.read())
    assert said(gate.state) == "queued"
    assert not project.jobs_changed()
    store.mark_running(row.id)
    assert project.jobs_changed()
    store.mark_ended(
        row.id, JobState.done, result=result(task="model.py:Gate", outcome=JobOutcome.at_limit, evaluations=0)
    )
    assert project.jobs_changed()
    gate = gate_of(project.read([]))
    assert (said(gate.state), gate.state.stale) == ("at limit", "")
    path.write_text(GATE.replace("relu", "tanh"))
    gate = gate_of(project.read([path]))
    assert "edited" in gate.state.stale


def test_what_apply_would_take_is_shown_where_a_newer_job_found_nothing(project, root):
    store = Store(resolve()[0].state_dir)
    task = task_of(root / "model.py", GATE, "Gate")
    for found in (result(best=best()), result()):
        row = store.add_job(task, JobOptions(), "cpu:0")
        store.mark_running(row.id)
        store.mark_ended(row.id, JobState.done, result=found)
    gate = gate_of(project.read())
    assert (gate.state.job, gate.state.outcome, gate.state.offer) == ("2", "no_candidate", "1")
    assert said(gate.state) == "2.0× compile job 1"
    assert find_job(store, gate.spec).id == gate.state.offer


def test_search_wants_every_word(project):
    modules = project.read()
    assert names(matching(modules, "NORM layers")) == ["layers/norm.py:Norm"]
    assert names(matching(modules, "py:g")) == ["model.py:Gate"]
    assert names(matching(modules, "  ")) == names(modules)
    assert matching(modules, "norm gate") == ()


def test_the_watcher_tells_of_sources_and_kernels_alone(root):
    heard, told = threading.Event(), set()

    def changed(paths):
        told.update(paths)
        if root / "last.py" in told:
            heard.set()

    watcher = Watcher(root, changed, pytest.fail)
    watcher.start()
    try:
        while (root / "first.py") not in told:
            (root / "first.py").write_text(GATE)
            threading.Event().wait(0.1)
        told.clear()
        (root / "notes.txt").write_text("nothing of ours")
        (root / ".cache").mkdir()
        (root / "model_kernels").mkdir()
        (root / "model_kernels/manifest.json").write_text("{}")
        (root / "last.py").write_text(GATE)
        assert heard.wait(60)
        assert {path.name for path in told} <= {"last.py", "model.py", "first.py", root.name}
    finally:
        watcher.stop()


def keep_scan(folder, *classes):
    """Stores a scan of a program in `folder`."""
    store = ScanStore(resolve()[0].state_dir)
    number, _ = store.begin(("python", "main.py"), str(folder))
    store.finish(replace(scan(*classes), id=number, folder=str(folder)))
    store.close()


@pytest.mark.parametrize("inside", [True, False])
def test_classes_of_libraries_that_a_scan_kept_are_listed_with_their_rank(project, root, tmp_path, inside):
    library = (root / ".venv" if inside else tmp_path) / "lib/site-packages/vendor/layers.py"
    library.parent.mkdir(parents=True)
    library.write_text(GATE.replace("Gate", "Vendored") + GATE.replace("Gate", "Unused"))
    where = {"path": str(library), "installed": True}
    kept, own = scanned("Vendored", 0.5, **where), scanned("Gate", 0.5, path=str(root / "model.py"))
    keep_scan(root, own, kept, scanned("Unused", 0.5, **where, folder=""))
    found = project.read()
    assert names(found) == ["model.py:Gate", "vendor/layers.py:Vendored", "layers/norm.py:Norm"]
    assert found[1].rank.position == 2 and found[1].spec == f"{library}:Vendored"
    keep_scan(tmp_path / "elsewhere", kept)
    assert names(project.read()) == names(found)
    keep_scan(root, own)
    assert names(project.read()) == ["model.py:Gate", "layers/norm.py:Norm"]
