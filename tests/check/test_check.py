"""Tests `check` on a project with real kernels: each verdict comes from a real change of the machine or the project."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from kernel_assistant.records import decode
from kernel_assistant.session.reporting.check_report import CheckReport, CheckStatus, ClassCheck

pytestmark = pytest.mark.slow


def report(done: Any) -> CheckReport:
    assert done.stdout, done.stderr
    return decode(done.stdout, CheckReport)


def only(done: Any, code: int | None = None, status: CheckStatus | None = None) -> ClassCheck:
    """The only class of a report; with `code` and `status`, the command ended with them."""
    (row,) = report(done).classes
    assert code is None or (done.returncode, row.status) == (code, status), done.stdout + done.stderr
    return row


def untimed(project: Any, *arguments: str) -> Any:
    return project.check("--json", "--no-timing", *arguments)


def rewrite(path: Path, change: Any) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def substitute(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


def accept(project: Any) -> None:
    """Makes the manifest list the package's files in their current form, as an author of such a change would."""
    from kernel_assistant.apply.files import digest

    package = project.folder / "model_kernels"
    names = [str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()]
    files = {name: digest((package / name).read_bytes()) for name in names if "__pycache__" not in name}
    files.pop("manifest.json")
    rewrite(package / "manifest.json", lambda document: document.update(files=files))


def test_what_was_verified_still_holds(project):
    row = only(untimed(project), 0, CheckStatus.ok)
    assert row.name == "model.py:Gate" and row.binary.startswith("kernels.") and row.rebuilt == "built"
    assert row.timing is None and row.applied is None
    assert row.recorded.versions["torch"] and row.recorded.timing is not None


@pytest.mark.programs
@pytest.mark.timed
def test_timing_compares_the_file_and_the_gate_decides(project):
    done = project.check("--json", "--fail-under", "1000", "--junit", "out/report.xml")
    row = only(done, 1, CheckStatus.slower)
    assert row.applied is not None and row.applied.equal and row.applied.original_ms > 0
    assert row.timing is None
    suite = ET.parse(project.folder / "out" / "report.xml").getroot()[0]
    assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "1", "1")
    case = suite[0]
    assert (case.get("classname"), case.get("name"), case.get("file")) == ("model.py", "Gate", "model.py")
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("type") == "slower" and "the gate is 1000×" in str(failure.get("message"))

    met = project.check("--fail-under", "0.0001", "--kernels")
    assert met.returncode == 0, met.stdout
    assert "model.py:Gate: ok: verified, " in met.stdout and met.stdout.endswith("1 applied: 1 ok\n")
    assert "  kernels    " in met.stdout and "torch.compile; " in met.stdout


def test_a_class_that_was_edited_is_stale(project):
    """The class now computes something else, as after an upgrade."""
    substitute(project.model, "* self.scale\n", "* self.scale + 1\n")
    row = only(project.check("--json"), 1, CheckStatus.stale)
    assert "has been edited since its kernels were verified" in row.message
    substitute(project.model, "class Gate", "class Port")
    assert "no class Gate any more" in only(project.check("--json")).message


@pytest.mark.programs
def test_a_class_that_is_built_otherwise_is_wrong(project):
    """The fingerprint does not cover constructor arguments: the class is the same, but its arguments have changed."""
    rewrite(project.kernels / "task.json", lambda task: task.update(init="(64, 2.0)"))
    accept(project)
    assert "incorrect" in only(untimed(project), 1, CheckStatus.wrong).message


@pytest.mark.programs
def test_a_guard_that_sends_the_declared_call_to_the_original_is_stale(project):
    rewrite(project.kernels / "provenance.json", lambda known: known["guard"]["attributes"][""].update(scale="9.0"))
    accept(project)
    row = only(untimed(project), 1, CheckStatus.stale)
    assert row.message == "the original runs for the declared call: attributes"


def test_wrong_kernels_are_wrong(project):
    substitute(project.source, "1.5f", "1.25f")
    assert only(untimed(project)).message.startswith("Gate/sources/gate.cpp is not as it was")
    accept(project)
    assert "built anew: incorrect" in only(untimed(project), 1, CheckStatus.wrong).message


@pytest.mark.programs
def test_a_broken_binary_is_wrong(project):
    (binary,) = project.kernels.glob("kernels.*.so")
    binary.write_bytes(binary.read_bytes()[:5000])
    accept(project)
    assert "the binary that is loaded here" in only(untimed(project), 1, CheckStatus.wrong).message


@pytest.mark.programs
def test_sources_that_no_longer_compile(project):
    substitute(project.source, "std::exp", "std::expo")
    accept(project)
    row = only(untimed(project), 1, CheckStatus.cannot_build)
    assert "expo" in row.message and row.rebuilt == "compile error"


@pytest.mark.programs
def test_a_missing_architecture_is_built_when_asked(project):
    (binary,) = project.kernels.glob("kernels.*.so")
    binary.rename(binary.with_name("kernels.aarch64.so"))
    accept(project)
    row = only(untimed(project), 1, CheckStatus.no_binary)
    assert "only for aarch64; the original runs" in row.message and "--build-missing" in row.next_step
    built = only(untimed(project, "--build-missing"))
    assert built.status is CheckStatus.ok and built.added == built.binary == binary.name, built.message
    assert (project.kernels / "kernels.aarch64.so").exists()
    assert only(untimed(project)).status is CheckStatus.ok
    undone = project.run("undo", project.model, cwd=project.folder)
    assert undone.returncode == 0 and not project.kernels.parent.exists()


@pytest.mark.programs
def test_a_binary_for_other_features_stays_beside_the_new_one(project):
    """The binary was built with -march=native on a machine with more features than this one."""

    rewrite(project.kernels / "provenance.json", lambda known: known["guard"].update(cpu_flags=["amx_of_the_future"]))
    accept(project)
    assert only(untimed(project)).status is CheckStatus.no_binary
    built = only(untimed(project, "--build-missing"))
    assert built.status is CheckStatus.ok and built.added.count(".") == 3
    flags = json.loads((project.kernels / "provenance.json").read_text())["guard"]["binary_flags"][built.added]
    assert "amx_of_the_future" not in flags
    assert len(list(project.kernels.glob("kernels.*.so"))) == 2


def test_without_a_gpu_cuda_kernels_cannot_run_here(project):
    rewrite(project.kernels / "plan.json", lambda plan: plan.update(target="cuda"))
    accept(project)
    done = project.check("--json", "--junit", "report.xml")
    row = only(done)
    if row.status is not CheckStatus.cannot_run:
        pytest.skip("there is a GPU here")
    assert done.returncode == 3 and "no NVIDIA GPU" in row.message
    case = ET.parse(project.folder / "report.xml").getroot()[0][0]
    assert case.find("skipped") is not None and case.find("failure") is None


@pytest.mark.programs
def test_without_recorded_inputs_those_of_the_file_are_taken(project):
    rewrite(project.kernels / "task.json", lambda task: task.update(source="files"))
    accept(project)
    assert only(untimed(project)).status is CheckStatus.ok
    substitute(project.model, "def get_inputs", "def other")
    assert "no inputs" in only(untimed(project), 2, CheckStatus.cannot_run).message


@pytest.mark.programs
def test_every_package_below_a_folder_is_found(project):
    shutil.copytree(project.folder, project.folder / "sub" / "inner")
    shutil.copytree(project.folder / "sub", project.folder / ".hidden")
    project.source.write_text("broken")
    done = untimed(project)
    assert done.returncode == 1
    assert {one.name: one.status for one in report(done).classes} == {
        "model.py:Gate": CheckStatus.wrong,
        "sub/inner/model.py:Gate": CheckStatus.ok,
    }
    assert len(report(untimed(project, "sub/inner/model.py")).classes) == 1


def test_bad_use_is_two_lines_and_a_code(project, tmp_path):
    (tmp_path / "empty").mkdir()
    cases = [
        (("check", "empty"), "no applied kernels"),
        (("check", "gone"), "does not exist"),
        (("check", "project", "--no-timing", "--fail-under", "1"), "needs timing"),
        (("check", "project", "--no-timing", "--kernels"), "--kernels times"),
        (("check", "project", "--target", "cuda"), "none of 1 applied classes is for cuda"),
        (("check", "project", "--junit", "/proc/no/report.xml", "--no-timing", "--python", sys.executable), "/proc/no"),
    ]
    for arguments, words in cases:
        done = project.run(*arguments, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        lines = done.stderr.splitlines()
        assert words in lines[-2] and lines[-2].startswith("error: ") and lines[-1].startswith("next: ")
    (project.kernels / "plan.json").write_text("{}")
    damaged = project.run("check", "project", cwd=tmp_path)
    assert damaged.returncode == 2 and "Plan" in damaged.stderr


@pytest.mark.programs
def test_a_class_of_an_installed_library_is_checked_too(project, verified, tmp_path):
    """The class is replaced from outside: the reference is the library's own file in this interpreter."""
    vendor = tmp_path / "site-packages" / "vendor"
    vendor.mkdir(parents=True)
    (vendor / "__init__.py").write_text("")
    assert project.run("undo", project.model, cwd=project.folder).returncode == 0
    shutil.copy(project.model, vendor / "layers.py")
    path = f"{vendor.parent}:{os.environ.get('PYTHONPATH', '')}:{Path(__file__).parents[2]}"
    home = {"cwd": project.folder, "PYTHONPATH": path, "KERNEL_ASSISTANT_HOME": str(tmp_path / "home")}
    own = ("--reference", vendor / "layers.py", "--python", sys.executable, "--target", "cpu")
    done = project.run("verify", verified / "workspace", *own, **home)
    assert done.returncode == 0, done.stdout + done.stderr
    try:
        applied = project.run("apply", "last", "--force", **home)
        assert "add this line to your program: import kernels_for_vendor" in applied.stdout, applied.stderr
        checked = ("check", "--json", "--no-timing", "--python", sys.executable)
        row = only(project.run(*checked, **home))
        assert row.status is CheckStatus.ok and row.name == "vendor.layers:Gate", row.message
        substitute(vendor / "layers.py", "* self.scale", "* 2")
        assert only(project.run(*checked, **home)).status is CheckStatus.stale
        (vendor / "layers.py").unlink()
        gone = project.run(*checked, **home)
        assert gone.returncode == 3 and "is not installed" in only(gone).message
        undone = project.run("undo", "kernels_for_vendor", **home)
        assert undone.returncode == 0 and not (project.folder / "kernels_for_vendor").exists()
    finally:
        project.run("host", "stop", **home)
