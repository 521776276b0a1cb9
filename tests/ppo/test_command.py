"""Tests that `kernel-assistant train` starts a stage in its place, and ends with its exit code."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.fixture
def run(own_state):
    def run(*words):
        command = [sys.executable, "-m", "kernel_assistant", "train", *words]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=200, check=False)

    return run


def test_help_names_the_stages(run):
    found = run("--help")
    assert found.returncode == 0
    assert all(stage in found.stdout for stage in ("ppo-single", "rft", "critic", "ppo-agent"))
    unknown = run("ppo")
    assert unknown.returncode == 2 and "ppo-single" in unknown.stderr


@pytest.mark.slow
def test_a_stage_has_its_own_options_and_exit_codes(run, tmp_path):
    known = run("critic", "--help")
    assert known.returncode == 0 and "--trajectories" in known.stdout
    empty = run("ppo-agent", "--base", str(tmp_path), "--out", str(tmp_path / "run"), "--target", "cpu")
    assert empty.returncode == 2, empty.stderr
    assert "holds no model" in empty.stderr and "Traceback" not in empty.stderr
