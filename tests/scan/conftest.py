"""Real programs that are scanned as users scan them: in a process and a state folder of their own."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.records import decode
from kernel_assistant.records.scan import Recording
from kernel_assistant.session.client import Client

START = Path(__file__).parents[2] / "kernel_assistant" / "worker" / "recording" / "start"


@pytest.fixture
def home(own_state, monkeypatch):
    monkeypatch.setenv("KERNEL_ASSISTANT_TARGET", "cpu")
    folder = own_state / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    Client(resolve()[0]).shutdown()


@pytest.fixture
def settings(home):
    return resolve()[0]


@pytest.fixture
def write(home):
    """A function: relative path and text → a file of the project."""

    def write_file(name: str, text: str) -> Path:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write_file


@pytest.fixture
def run(settings):
    """A function: arguments of kernel-assistant → the finished process."""

    def run_command(*arguments):
        command = [sys.executable, "-m", "kernel_assistant", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run_command


@pytest.fixture
def answer(run):
    """A function: arguments of kernel-assistant → the JSON that it prints."""

    def answer_of(*arguments, code=0):
        done = run(*arguments)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    return answer_of


@pytest.fixture
def scan(answer):
    """A function: the command to scan → the JSON of the scan."""
    return functools.partial(answer, "scan", "--json", "--top", "50", "--")


@pytest.fixture
def record(home, tmp_path):
    """A function: arguments of Python → (the finished process, its recordings), without ranking and storing."""
    count = iter(range(100))

    def record_command(*arguments, children=False, outermost=False):
        folder = tmp_path / f"recordings{next(count)}"
        folder.mkdir()
        environment = {
            **os.environ,
            "PYTHONPATH": f"{START}:{os.environ['PYTHONPATH']}",
            "KERNEL_ASSISTANT_SCAN": str(folder),
            "KERNEL_ASSISTANT_SCAN_CHILDREN": "1" if children else "",
            "KERNEL_ASSISTANT_SCAN_OUTERMOST": "1" if outermost else "",
        }
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        files = sorted(folder.glob("*/recording.json"))
        return done, [decode(path.read_bytes(), Recording) for path in files]

    return record_command
