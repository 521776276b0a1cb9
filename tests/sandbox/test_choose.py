"""Tests that the choice is never "no sandbox" by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.sandbox.bubblewrap import Bubblewrap
from kernel_assistant.sandbox.choose import choose, probe
from kernel_assistant.sandbox.contract import Sandbox, SandboxSpec
from kernel_assistant.sandbox.landlock import Landlock

ASK = "from kernel_assistant.sandbox.choose import choose; print(choose('{mode}').name)"


def test_auto_is_the_first_that_works_here() -> None:
    usable = [status.backend for status in probe() if status.usable]
    if usable:
        assert choose("auto").name == usable[0]
    else:
        with pytest.raises(MissingError, match="no sandbox works here"):
            choose("auto")


def test_what_does_not_work_says_why_and_what_to_do() -> None:
    for status in probe():
        assert status.usable or (status.reason and status.next_step)


def test_another_mode_is_bad_use() -> None:
    with pytest.raises(UsageError, match="docker"):
        choose("docker")


def test_none_says_what_it_means() -> None:
    assert "all your rights" in choose("none").explanation


def test_a_bubblewrap_that_fails_is_not_chosen(tmp_path: Path) -> None:
    """The program exists and does not work, as on a machine that forbids user namespaces."""
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    broken.chmod(0o755)
    env = {**os.environ, "PYTHONPATH": ":".join(sys.path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    asked = [sys.executable, "-c", ASK.format(mode="bubblewrap")]
    done = subprocess.run(asked, env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "setting up uid map: Permission denied" in done.stderr


def test_without_bubblewrap_the_next_step_is_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError) as caught:
        Bubblewrap()
    assert "install" in caught.value.next_step


def test_a_kernel_without_landlock_is_said() -> None:
    with pytest.raises(MissingError, match="no Landlock"):
        Landlock(abi=0)


def test_a_command_carries_nothing_of_our_environment(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "never-to-be-seen")
    command = sandbox.command(SandboxSpec(argv=("true",)))
    assert "never-to-be-seen" not in str(command)
    assert set(command.env) == {"PATH", "LANG"}


@pytest.mark.parametrize("path", ["relative", "./x", ""])
def test_relative_paths_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="absolute"):
        SandboxSpec(argv=("true",), read_only=(path,))
