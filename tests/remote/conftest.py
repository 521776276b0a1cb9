"""Commands on the remote machine of `tests/common/sshd.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.remote.ssh import Ssh
from tests.common.modules import POINTWISE
from tests.common.sshd import lacking, ssh_folder, sshd

__all__ = ["ssh_folder", "sshd"]


def pytest_collection_modifyitems(items):
    reason = lacking()
    for item in items:
        names = getattr(item, "fixturenames", ())
        if reason and Path(__file__).parent in item.path.parents and {"sshd", "here"}.intersection(names):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def here(tmp_path, monkeypatch, python_path, ssh_folder):
    """The local side: a state folder of its own, and the tests' ssh."""
    for name in [name for name in os.environ if name.startswith("KERNEL_ASSISTANT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KERNEL_ASSISTANT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNEL_ASSISTANT_TARGET", "cpu")
    monkeypatch.setenv("PYTHONPATH", python_path)
    monkeypatch.setenv("PATH", f"{ssh_folder[0] / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    Ssh("box", resolve()[0].runtime_dir).disconnect()


@pytest.fixture
def run(here):
    """A function: arguments → the finished command, with its output as text."""

    def run_command(*arguments, **environment):
        command = [sys.executable, "-m", "kernel_assistant", *map(str, arguments)]
        environment = {**os.environ, **environment}
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    return run_command


@pytest.fixture
def module(here):
    path = here / "net.py"
    path.write_text(POINTWISE)
    return path


@pytest.fixture
def two_turns(monkeypatch):
    """Jobs end after two turns of the generator."""
    for name, value in {"BUDGET": "60s", "TURNS": "2", "POLICY": "generator", "FREE_WINS": "false"}.items():
        monkeypatch.setenv(f"KERNEL_ASSISTANT_{name}", value)
