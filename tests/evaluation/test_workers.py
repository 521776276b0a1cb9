"""Workers that share a compiler: which of them gets a job, and what is built before it is needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import pytest

from kernel_assistant.records import Candidate, Tier
from kernel_assistant_training.episodes.subject import subjects
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.tasks import Task
from kernel_assistant_training.evaluation.worker import EvaluationJob, JobFailed
from kernel_assistant_training.evaluation.workers import AHEAD
from kernel_assistant_training.ppo.pool.local_host import LocalHost
from tests.pool.hosts import requests

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Given:
    task: Task
    candidates: tuple[Candidate, ...]

    @property
    def job(self) -> EvaluationJob:
        return EvaluationJob(self.task, tuple((one, Tier.verify) for one in self.candidates))


def _given(count: int) -> list[Given]:
    made = (request for subject in islice(subjects(1, "cpu"), count) for request in requests(subject))
    return [Given(one.task, (one.candidate,)) for one in made]


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[LocalHost]:
    """Two, whose bandwidths are given: on a busy machine they cannot be measured."""
    options = WorkerOptions("cpu", sys.executable, logs=tmp_path, cache=tmp_path / "cache", count=2, builders=1)
    with LocalHost(replace(options, most=Tier.verify, bandwidths=(5e10, 6e10))) as made:
        assert made.greeting.device.copy_bandwidth == 5e10 and made.greeting.workers == 2
        yield made


def test_an_unexpected_error_costs_the_worker(workers: LocalHost, monkeypatch: pytest.MonkeyPatch) -> None:
    (given,) = _given(1)
    monkeypatch.setattr(workers.workers[1], "open", lambda task: 1 / 0)
    (answer,) = workers.judge(1, given.job)
    assert answer == JobFailed(why="internal ZeroDivisionError: division by zero", lost=True)
    assert [worker.lost for worker in workers.workers] == ["", answer.why]
    assert not workers._compiler._begun


def test_the_next_candidates_are_built_and_those_of_before_dropped(workers: LocalHost) -> None:
    stream = _given(AHEAD + 3)
    hashes = [given.candidates[0].hash() for given in stream]
    for index, given in enumerate(workers.ahead(stream)):
        assert given is stream[index]
        assert list(workers._compiler._begun) == hashes[index : index + AHEAD + 1]
    assert not workers._compiler._begun
