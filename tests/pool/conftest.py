"""Tasks with candidates, and groups of evaluation hosts."""

from __future__ import annotations

from itertools import islice

import pytest

from kernel_assistant_training.episodes.subject import subjects
from kernel_assistant_training.evaluation.worker import EvaluationJob
from kernel_assistant_training.ppo.pool.host_group import HostGroup
from tests.pool.hosts import OPTIONS, requests


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch, python_path):
    monkeypatch.setenv("KERNEL_ASSISTANT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", python_path)


@pytest.fixture
def fleet():
    """A function: connections → a group of these hosts, and the lines that it reported."""
    made = []

    def make(*connections, options=OPTIONS, patience=60.0):
        lines = []
        made.append(HostGroup(connections, options, lines.append, patience))
        return made[-1], lines

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def asked():
    """A right candidate and one that does not compile, for each of three tasks."""
    return [requests(subject, "undeclared;") for subject in islice(subjects(1, "cpu"), 3)]


@pytest.fixture
def jobs(asked):
    """One job for each task, with its two candidates."""
    return [EvaluationJob(some[0].task, tuple((one.candidate, one.tier) for one in some)) for some in asked]
