"""From a program to a faster program: scan, optimize from the recording, apply, scan again. Nothing is stubbed."""

from __future__ import annotations

import sys

import pytest

from kernel_assistant.records import OptimizeResult, decode
from tests.scan.programs import package

pytestmark = pytest.mark.slow


def test_scan_optimize_apply_scan(write, run, scan):
    package(write)
    first = scan(sys.executable, "-m", "pkg", code=7)

    done = run("optimize", "--scan", "last:Gate", "--json", "--budget", "4s", "--no-free-wins")
    assert done.returncode == 0, done.stderr
    result = decode(done.stdout, OptimizeResult)
    assert result.task == "model.py:Gate" and "plan.json" in result.artifacts, done.stderr

    applied = run("apply", "last", "--force")
    assert applied.returncode == 0, applied.stderr
    second = scan(sys.executable, "-m", "pkg", code=7)
    comparison = second["comparison"]
    assert comparison["before"] == first["id"]
    assert [name.rpartition("/")[2] for name in comparison["applied"]] == ["model.py:Gate"]
    changes = {change["name"]: change for change in comparison["classes"]}
    assert changes["Gate"]["applied"] and not changes["Model"]["applied"]
    assert changes["Gate"]["calls_before"] == changes["Gate"]["calls_after"] == 4
    assert comparison["speedup"] == pytest.approx(comparison["before_seconds"] / comparison["after_seconds"])

    third = scan(sys.executable, "-m", "pkg", code=7)
    assert third["comparison"]["before"] == first["id"]
    table = run("scan", "--against", second["id"], "--", sys.executable, "-m", "pkg").stdout
    assert "Against scan 2" in table and "whole program" in table

    assert run("undo", "last").returncode == 0
    back = scan(sys.executable, "-m", "pkg", code=7)
    assert not back["comparison"]["applied"] and len(back["comparison"]["removed"]) == 1
