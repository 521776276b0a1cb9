"""Tasks with candidates, and fleets of machines."""

from __future__ import annotations

from itertools import islice

import pytest

from kernel_assistant.agent.directives import candidate_from
from kernel_assistant_training.episodes.subject import subjects
from kernel_assistant_training.ppo.pool import Asked
from kernel_assistant_training.ppo.pool_fleet import Fleet
from kernel_assistant_training.ppo.pool_worker import Job
from kernel_assistant_training.ppo.tasks import of_graph
from tests.pool.piped import OPTIONS


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch, python_path):
    monkeypatch.setenv("KERNEL_ASSISTANT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", python_path)


@pytest.fixture
def fleet():
    """Members → a fleet of them, and the lines that it told."""
    made = []

    def make(*members, options=OPTIONS, patience=60.0):
        lines = []
        made.append(Fleet(members, options, lines.append, patience))
        return made[-1], lines

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def asked():
    """Of each of three tasks a right candidate, and one that does not compile."""
    found = []
    for subject in islice(subjects(1, "cpu"), 3):
        task, source = of_graph(subject.graph, "cpu"), subject.answers[0].source
        versions = [source, source.replace("{\n", "{\n  undeclared;\n", 1)]
        found.append(
            [Asked(task, candidate_from({"kernel.cpp": text}, task.graph, "cpu", task.canonical)) for text in versions]
        )
    return found


@pytest.fixture
def jobs(asked):
    """One for each task, with its two candidates."""
    return [Job(some[0].task, tuple((one.candidate, one.tier) for one in some)) for some in asked]
