"""Workers that share a compiler: which of them gets a job, and what is built before it is needed."""

from __future__ import annotations

import queue
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from kernel_assistant.agent.directives import candidate_from
from kernel_assistant.environment.ceilings import keep_ceilings
from kernel_assistant.records import Candidate, Tier
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.episodes.subject import subjects
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.tasks import Task, of_graph
from kernel_assistant_training.evaluation.worker import EvaluationJob, EvaluationWorker
from kernel_assistant_training.evaluation.workers import AHEAD, EvaluationWorkers

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Given:
    task: Task
    candidates: tuple[Candidate, ...]

    @property
    def job(self) -> EvaluationJob:
        return EvaluationJob(self.task, tuple((one, Tier.verify) for one in self.candidates))


class Heard:
    """See `JobObserver`. Keeps the workers that ended a job."""

    def __init__(self) -> None:
        self.workers: queue.SimpleQueue[EvaluationWorker] = queue.SimpleQueue()

    def began(self) -> None: ...

    def progressed(self) -> None: ...

    def ended(self, worker: EvaluationWorker) -> None:
        self.workers.put(worker)


def _given(count: int) -> list[Given]:
    found = []
    for subject in islice(subjects(1, "cpu"), count):
        task = of_graph(subject.graph, "cpu")
        files = {"kernel.cpp": subject.answers[0].source}
        found.append(Given(task, (candidate_from(files, task.graph, "cpu", task.canonical),)))
    return found


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[EvaluationWorkers]:
    """Two, whose bandwidths are given: on a busy machine they cannot be measured."""
    keep_ceilings(msgspec.structs.replace(detect("cpu"), copy_bandwidth=5e10, read_bandwidth=6e10), tmp_path / "cache")
    options = WorkerOptions(
        "cpu", sys.executable, logs=tmp_path, cache=tmp_path / "cache", count=2, builders=1, most=Tier.verify
    )
    with EvaluationWorkers(options) as made:
        assert made.start().copy_bandwidth == 5e10
        yield made


def test_a_job_goes_to_the_worker_that_has_its_task_open(workers: EvaluationWorkers) -> None:
    one, other = _given(2)
    first, heard = [one.job, other.job], Heard()
    for job in first:
        workers.give(job, heard)
    assert len({heard.workers.get(timeout=300) for _ in first}) == 2
    assert all(evaluation is not None and evaluation.correct for job in first for evaluation in job.found)
    assert sorted(workers.open_tasks) == sorted(job.task_hash for job in first)
    for given in (other, one, other, one):
        job = given.job
        workers.give(job, heard)
        assert heard.workers.get(timeout=300).has_open == job.task_hash
        assert job.found[0] is not None and job.found[0].correct
    assert sorted(workers.open_tasks) == sorted(job.task_hash for job in first), "none was opened again"


def test_an_unexpected_error_costs_the_job_and_its_worker(
    workers: EvaluationWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    (given,), heard = _given(1), Heard()
    for worker in workers.workers:
        monkeypatch.setattr(worker, "open", lambda task: 1 / 0)
    job = given.job
    workers.give(job, heard)
    ended = heard.workers.get(timeout=300)
    assert ended.lost == job.why == "internal ZeroDivisionError: division by zero"
    assert job.found == [None]


def test_the_next_candidates_are_built_and_those_of_before_dropped(workers: EvaluationWorkers) -> None:
    stream = _given(AHEAD + 3)
    hashes = [given.candidates[0].hash() for given in stream]
    for index, given in enumerate(workers.ahead(stream)):
        assert given is stream[index]
        assert list(workers._compiler._begun) == hashes[index : index + AHEAD + 1]
    assert not workers._compiler._begun
