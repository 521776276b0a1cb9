"""Projects, state folders and hosts for the terminal front end; every process that a test starts ends with the test."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.session.client import Client
from tests.common import hosts
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
        settings = {"HOME": folder / "home", "PYTHON": sys.executable, "TARGET": "cpu", "POLICY": "generator"}
        settings |= {"BUDGET": "60s", "TURNS": "1", "FREE_WINS": "false"}
        for name, value in settings.items():
            patch.setenv(f"KERNEL_ASSISTANT_{name}", str(value))
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
        started.append(hosts.start_host(HOSTS / name, settings))
        return started[-1]

    yield start
    for child in started:
        child.kill()
        child.wait()


@pytest.fixture
def tiny_host(start_host):
    return start_host("tiny_host.py")


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
