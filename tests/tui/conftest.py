"""Projects, state folders and hosts for the terminal front end; every process that a test starts ends with the test."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.session.client import Client
from kernel_assistant.session.start import find_host
from tests.common.caches import new_cache
from tests.common.modules import GATE

HOSTS = Path(__file__).parent.parent / "session"

MODEL = GATE

#: A class that says nothing of how it is called.
BARE = """from torch import nn


class Bare(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return self.linear(x).relu()
"""


@pytest.fixture
def home(own_state, monkeypatch):
    monkeypatch.setenv("KERNEL_ASSISTANT_TARGET", "cpu")
    monkeypatch.setenv("KERNEL_ASSISTANT_PYTHON", sys.executable)
    yield own_state
    Client(resolve()[0]).shutdown()


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory, python_path):
    """One state folder and one host for the tests of a file, so that a worker with torch stays warm for the next
    test.
    """
    folder = tmp_path_factory.mktemp("shared")
    new_cache(folder / "home" / "cache")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("KERNEL_ASSISTANT_")]:
            patch.delenv(name)
        patch.setenv("KERNEL_ASSISTANT_HOME", str(folder / "home"))
        patch.setenv("KERNEL_ASSISTANT_TARGET", "cpu")
        patch.setenv("KERNEL_ASSISTANT_PYTHON", sys.executable)
        patch.setenv("KERNEL_ASSISTANT_POLICY", "generator")
        patch.setenv("KERNEL_ASSISTANT_BUDGET", "60s")
        patch.setenv("KERNEL_ASSISTANT_TURNS", "1")
        patch.setenv("KERNEL_ASSISTANT_FREE_WINS", "false")
        patch.setenv("PYTHONPATH", python_path)
        yield folder
        Client(resolve()[0]).shutdown()


@pytest.fixture
def settings(home):
    return resolve()[0]


@pytest.fixture
def project(home):
    """A folder with one class that has inputs."""
    folder = home / "ein Projekt ä"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    return folder


@pytest.fixture
def start_host(settings):
    """A function that starts a host of tests/session, given its file's name."""
    started = []

    def start(name):
        child = subprocess.Popen([sys.executable, str(HOSTS / name)])
        started.append(child)
        while (stream := find_host(settings)) is None:
            assert child.poll() is None
            time.sleep(0.01)
        stream.close()
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()


@pytest.fixture
def steered(project):
    """A function: first line → the file of a class Gate, for the host that follows the instruction in that line
    (tiny_host.py).
    """

    def write(first_line, name="model.py"):
        path = project / name
        path.write_text(f"# {first_line}\n{MODEL}")
        return path

    return write
