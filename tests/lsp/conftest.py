"""A workspace, a session host of its own, and editors that end with the test."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import pytest_asyncio

from kernel_assistant.config import resolve
from kernel_assistant.session.client import Client
from kernel_assistant.session.start import find_host

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

HOSTS = HERE.parent / "session"

MODEL = """import torch
from torch import nn


class Gate(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x) * torch.tanh(x) + torch.relu(x) * 0.5


def get_inputs():
    return [torch.randn(256, 1024)]
"""


@pytest.fixture
def home(tmp_path, monkeypatch, python_path):
    for name in [name for name in os.environ if name.startswith("KERNEL_ASSISTANT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KERNEL_ASSISTANT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNEL_ASSISTANT_TARGET", "cpu")
    monkeypatch.setenv("KERNEL_ASSISTANT_POLICY", "generator")
    monkeypatch.setenv("PYTHONPATH", python_path)
    yield tmp_path
    Client(resolve()[0]).shutdown()


@pytest.fixture
def settings(home):
    return resolve()[0]


@pytest.fixture
def workspace(home):
    folder = home / "ein Projekt mit Umlaut ä 🙂"
    folder.mkdir()
    return folder


@pytest.fixture
def model(workspace):
    path = workspace / "model.py"
    path.write_text(MODEL)
    return path


@pytest.fixture
def start_host(settings):
    """Starts a host of tests/session by its file's name."""
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


@pytest_asyncio.fixture
async def start_editor(workspace):
    """Folders and options → an editor with a running server."""
    from editor import Editor

    started = []

    async def start(*folders, **more):
        editor = Editor()
        started.append(editor)
        return await editor.start(folders or (workspace,), **more)

    yield start
    for editor in started:
        await editor.close()
