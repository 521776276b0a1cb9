"""A state folder of its own for every test, and hosts that end with it."""

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


@pytest.fixture
def settings(own_state):
    resolved, _ = resolve()
    yield resolved
    Client(resolved).shutdown()


@pytest.fixture
def start_tiny(settings):
    """Starts the host of `tiny_host.py`, waits until it listens."""
    started = []

    def start(**environment):
        child = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("tiny_host.py"))],
            env={**os.environ, **environment},
            stderr=subprocess.PIPE,
        )
        started.append(child)
        while (stream := find_host(settings)) is None:
            assert child.poll() is None, child.stderr.read().decode()
            time.sleep(0.01)
        stream.close()
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
        child.stderr.close()
