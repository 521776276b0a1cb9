"""The command line as a user runs it: in a process and a state folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kernel_assistant.config import resolve
from kernel_assistant.session.client import Client
from tests.common.hosts import start_host
from tests.common.modules import POINTWISE

TINY_HOST = Path(__file__).parent.parent / "session" / "tiny_host.py"
SCRIPTED_HOST = TINY_HOST.with_name("scripted_host.py")


@pytest.fixture
def home(own_state, monkeypatch):
    monkeypatch.setenv("KERNEL_ASSISTANT_TARGET", "cpu")
    monkeypatch.chdir(own_state)
    yield own_state
    Client(resolve()[0]).shutdown()


@pytest.fixture
def settings(home):
    return resolve()[0]


@pytest.fixture
def command():
    """A function: arguments → the argument vector of the process."""
    return lambda *arguments: [sys.executable, "-m", "kernel_assistant", *map(str, arguments)]


@pytest.fixture
def run(home, command):
    """A function: arguments → the finished process, with its output as text; it ends with `code`, if one is given."""

    def run_command(*arguments, code=None, **environment):
        environ = {**os.environ, **environment}
        done = subprocess.run(command(*arguments), capture_output=True, text=True, env=environ, check=False)
        assert code in (None, done.returncode), done.stderr
        return done

    return run_command


@pytest.fixture
def tiny(settings):
    """A host whose jobs follow the instruction in the first line of the module's file."""
    child = start_host(TINY_HOST, settings)
    yield child
    child.kill()
    child.wait()


@pytest.fixture
def scripted(settings, own_templates):
    """A host whose policy submits one hand-written kernel, for a chain of twelve steps."""
    child = start_host(SCRIPTED_HOST, settings)
    yield child
    workers = psutil.Process(child.pid).children(recursive=True)
    Client(settings).shutdown()
    child.wait()
    assert psutil.wait_procs(workers, timeout=60)[1] == []


@pytest.fixture
def module(home):
    """A function: first line → the path of a file that defines Net."""

    def write(first_line="", name="model.py"):
        path = home / name
        path.write_text(f"# {first_line}\n{POINTWISE}")
        return path

    return write
