"""From a program to a faster program: scan, optimize from the recording, apply, scan again. Everything is real."""

from __future__ import annotations

import sys

import pytest

from tests.scan.programs import package

pytestmark = [pytest.mark.programs, pytest.mark.slow]


def test_scan_optimize_apply_scan(write, run, answer, scan, monkeypatch):
    monkeypatch.setenv("KERNEL_ASSISTANT_TURNS", "2")
    package(write)
    first = scan(sys.executable, "-m", "pkg", code=7)

    program = answer("optimize", "--scan", "last", "--top", "1", "--json", "--budget", "60s", "--no-free-wins")
    (gate,) = program["classes"]
    assert gate["class"] == "pkg.model.Gate" and not gate["failure"] and program["scan"] == first["id"], program
    saved = program["before_seconds"] - program["after_seconds"]
    assert saved == pytest.approx(gate["saved_seconds"]) and program["speedup"] >= 1

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
