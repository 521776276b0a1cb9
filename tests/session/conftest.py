"""A state folder for every test, and hosts that end with the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.session.client import Client
from kernel_assistant.store import Store
from tests.common.hosts import start_host

NORM = "from torch import nn\n\n\nclass Norm(nn.Module):\n    def forward(self, x):\n        return x.relu()\n"


@pytest.fixture
def settings(own_state):
    resolved, _ = resolve()
    yield resolved
    Client(resolved).shutdown()


@pytest.fixture
def store(settings):
    opened = Store(settings.state_dir)
    yield opened
    opened.close()


@pytest.fixture
def path(own_state):
    """A file of the user that defines Norm."""
    file = own_state / "model.py"
    file.write_text(NORM)
    return file


@pytest.fixture
def start_tiny(settings):
    """Starts the host of `tiny_host.py` and waits until it listens."""
    started = []

    def start(**environment):
        child = start_host(Path(__file__).with_name("tiny_host.py"), settings, **environment)
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
