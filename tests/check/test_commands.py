"""Tests `export`, and the reports of other commands about a check. The kernels come from the verified job."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kernel_assistant.records import decode
from kernel_assistant.session.reporting.check_report import CheckReport

pytestmark = [pytest.mark.programs, pytest.mark.slow]


def test_an_exported_package_serves_calls(command, verified, tmp_path):
    done = command("export", "1", tmp_path / "out", "--to", "package", "--json", cwd=verified)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["job"] == "1" and told["form"] == "package" and told["files"][0] == str(tmp_path / "out/gate_kernels")
    use = (
        "import torch; from gate_kernels import Gate, kernels; torch.set_grad_enabled(False)\n"
        "Gate().eval()(torch.randn(256, 64)); print(kernels.counters()['Gate']['kernel'])"
    )
    assert subprocess.check_output([sys.executable, "-c", use], cwd=tmp_path / "out", text=True) == "1\n"


def test_an_export_that_cannot_be_is_two_lines_and_a_code(command, verified, tmp_path):
    cases = [
        (("export", "1", verified, "--to", "package"), "not empty"),
        (("export", "1", tmp_path / "out", "--to", "cuda-agent"), "for the CPU"),
        (("export", "99", tmp_path / "out", "--to", "package"), "no job"),
        (("export", "1", tmp_path / "out"), "--to"),
    ]
    for arguments, words in cases:
        done = command(*arguments, cwd=verified)
        lines = done.stderr.splitlines()
        assert done.returncode == 2 and len(lines) == 2 and words in lines[0], done.stderr
        assert not (tmp_path / "out").exists()


def test_a_check_is_a_job_like_any_other(project):
    done = project.check("--json", "--no-timing")
    assert decode(done.stdout, CheckReport).exit_code == done.returncode == 0
    rows = json.loads(project.run("history", "--json", cwd=project.folder).stdout)
    (mine,) = [row for row in rows if row["kind"] == "check" and row["path"] == str(project.model)]
    shown = project.run("show", mine["job"], cwd=project.folder)
    assert shown.returncode == 0 and "model.py:Gate" in shown.stdout
    # It confirmed no gain of its own, so it is nothing that apply would take.
    assert project.run("apply", mine["job"], cwd=project.folder).returncode == 2
