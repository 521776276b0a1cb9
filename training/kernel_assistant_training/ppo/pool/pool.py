"""The evaluation pool: workers on this machine and on other hosts evaluate candidates for training. Identical
candidates are evaluated once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

from kernel_assistant.records import Candidate, Evaluation, Outcome, Stage, Tier
from kernel_assistant.records.codec import Record
from kernel_assistant.sandbox.choose import choose
from kernel_assistant_training.episodes.lines import EpisodeFile, read_lines
from kernel_assistant_training.evaluation.options import BESIDE_TRAINER, WorkerOptions
from kernel_assistant_training.evaluation.tasks import Task
from kernel_assistant_training.evaluation.worker import EvaluationJob, EvaluationWorker, OpenedTask
from kernel_assistant_training.options.addresses import HostAddress, places
from kernel_assistant_training.ppo.pool import ray_hosts
from kernel_assistant_training.ppo.pool.host_group import HostGroup
from kernel_assistant_training.ppo.pool.hosts import Connect, EvaluationHost
from kernel_assistant_training.ppo.pool.kind import device_kind, judge_version
from kernel_assistant_training.ppo.pool.local_host import LocalHost

#: Smallest number of candidates in a part of a split job: opening a task costs as much as evaluating about ten.
LEAST_PART = 8
#: Losses of the judge at one candidate until the candidate is blamed: the first may be the machine's fault.
LOSSES = 2


@dataclass(frozen=True)
class PoolOptions:
    """Options of the pool. `out` gets evaluations.jsonl and logs; `cache` is the folder with the device's bandwidths.
    `most` is the highest tier that is needed; `throughput` leaves out what only people read (`Environment`); `builders`
    compilers run at once. `pool` has addresses of hosts as on the command line; without any, `workers` workers run on
    this machine. If all hosts are lost during a call, the pool waits `patience_seconds` for a host to come back.
    Evaluations in the files `known`, of earlier runs, are reused. `tell` gets each line of text for the user."""

    target: str
    out: Path
    cache: Path
    python: str
    workers: int = 1
    builders: int = 2
    sandbox: str = "auto"
    most: Tier = Tier.quick
    throughput: bool = True
    pool: tuple[str, ...] = ()
    patience_seconds: float = 120.0
    known: tuple[Path, ...] = ()
    tell: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: T201 - for people


@dataclass(frozen=True)
class EvaluationRequest:
    """A candidate of a task, and the tier (how thorough) in which it is to be evaluated."""

    task: Task
    candidate: Candidate
    tier: Tier = Tier.quick

    @property
    def key(self) -> tuple[str, str, str]:
        """The key under which the evaluation is stored. It contains the hash of the task, not the key of the canonical
        graph: tasks of different sizes have the same canonical graph, but different times.
        """
        return self.task.kernel_task.hash(), self.candidate.hash(), self.tier.value


class StoredEvaluation(Record, frozen=True, kw_only=True):
    """A line of evaluations.jsonl. `task` is the hash of a `KernelTask`, `device` the kind of device, `judge` the
    version of the judge; evaluations of another kind or version are not reused."""

    task: str
    evaluation: Evaluation
    device: str = ""
    judge: str = ""


class EvaluationPool:
    """Evaluates candidates on all hosts of the pool, and stores and reuses evaluations. A context manager; used by one
    thread. `judged` and `repeated` count the candidates that were evaluated and looked up, `void` those without a
    usable evaluation."""

    def __init__(self, options: PoolOptions) -> None:
        self.sandbox, self._tell = choose(options.sandbox), options.tell
        asked = WorkerOptions(
            target=options.target,
            python=options.python,
            logs=options.out,
            cache=options.cache,
            builders=options.builders,
            sandbox=options.sandbox,
            most=options.most,
            throughput=options.throughput,
            memory=BESIDE_TRAINER,
        )
        self._lines = EpisodeFile(options.out / "evaluations.jsonl")
        try:
            self._host_group = HostGroup(connections(options), asked, options.tell, options.patience_seconds)
        except BaseException:
            self._lines.close()
            raise
        self.device = self._host_group.greeting.device
        self._kind = device_kind(self.device)
        self._losses: Counter[tuple[str, str, str]] = Counter()
        self._known: dict[tuple[str, str, str], Evaluation] = {
            (one.task, one.evaluation.candidate, one.evaluation.tier.value): one.evaluation
            for file in (*options.known, options.out / "evaluations.jsonl")
            for one in read_lines(file, StoredEvaluation)
            if (one.device, one.judge) == (self._kind, judge_version())
        }
        self._opened: dict[str, OpenedTask] = {}
        self.judged = self.repeated = self.void = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    @property
    def workers(self) -> list[EvaluationWorker]:
        """The workers on this machine."""
        return [worker for host in self._host_group.hosts if isinstance(host, LocalHost) for worker in host.workers]

    def open(self, tasks: Collection[Task]) -> dict[str, OpenedTask]:
        """Opens tasks. Returns task's key → graph, facts and eager baseline of the task, as they were when it was
        opened for the first time. Tasks that cannot be opened are left out and reported to the user."""
        hashes = {task.kernel_task.hash(): task for task in tasks}
        jobs = [EvaluationJob(task, ()) for known, task in hashes.items() if known not in self._opened]
        self._host_group.run(jobs, self._keep)
        for job in jobs:
            if job.opened is None:
                self._tell(f"task {job.task.key} cannot be judged: {job.why}")
            else:
                self._opened[job.task_hash] = job.opened
        return {task.key: self._opened[known] for known, task in hashes.items() if known in self._opened}

    def judge(self, asked: Sequence[EvaluationRequest]) -> list[Evaluation | None]:
        """Returns the evaluations of the candidates, in order. An entry is None if the judge was lost while it
        evaluated the candidate (a second loss counts as a crash of the candidate), or if other programs disturbed every
        measurement. Raises DeviceError if no worker is left."""
        keys = [one.key for one in asked]
        fresh = {key: one for key, one in zip(keys, asked, strict=True) if key not in self._known}
        self.repeated += len(asked) - len(fresh)
        by_task: dict[str, EvaluationJob] = {}
        for key, one in fresh.items():
            by_task.setdefault(key[0], EvaluationJob(one.task, ())).candidates += ((one.candidate, one.tier),)
        jobs = parts(list(by_task.values()), self._host_group.workers)
        self._host_group.run(jobs, self._keep)
        for job in jobs:
            self.judged += len(job.evaluations)
            for index, evaluation in enumerate(job.evaluations):
                if evaluation is None and index < job.tried:
                    self._lose(job, index)
                elif evaluation is None or evaluation.outcome is Outcome.inconclusive:
                    self.void += 1
        return [self._known.get(key) for key in keys]

    def close(self) -> None:
        self._host_group.close()
        self._lines.close()

    def _keep(self, job: EvaluationJob, index: int) -> None:
        """Stores the evaluation of the job's candidate number `index`. Missing (None) and inconclusive evaluations are
        not stored, so that the candidate is evaluated again."""
        evaluation = job.evaluations[index]
        if evaluation is not None and evaluation.outcome is not Outcome.inconclusive:
            self._store(_key(job, index), evaluation)

    def _store(self, key: tuple[str, str, str], evaluation: Evaluation) -> None:
        self._known[key] = evaluation
        self._lines.add(StoredEvaluation(task=key[0], evaluation=evaluation, device=self._kind, judge=judge_version()))

    def _lose(self, job: EvaluationJob, index: int) -> None:
        key, (candidate, tier) = _key(job, index), job.candidates[index]
        self._losses[key] += 1
        if self._losses[key] < LOSSES:
            self.void += 1
            return
        # If it stayed void, the policy could write it again and again without any effect on training.
        evaluation = Evaluation(
            candidate=candidate.hash(),
            tier=tier,
            outcome=Outcome.crashed,
            stage=Stage.verify,
            message=f"the judge was lost at it {LOSSES} times",
        )
        self._store(key, evaluation)


def _key(job: EvaluationJob, index: int) -> tuple[str, str, str]:
    """Returns the `EvaluationRequest.key` of the job's candidate number `index`."""
    return job.task_hash, job.hashes[index], job.candidates[index][1].value


def parts(jobs: Sequence[EvaluationJob], workers: int) -> list[EvaluationJob]:
    """Splits jobs with many candidates, so that all workers are busy to the end. Returns all jobs, those with the most
    candidates first."""
    if workers < 2:
        return list(jobs)
    count = sum(len(job.candidates) for job in jobs)
    most = max(LEAST_PART, -(-count // (2 * workers)))
    split = [
        EvaluationJob(job.task, job.candidates[first : first + most])
        for job in jobs
        for first in range(0, len(job.candidates), most)
    ]
    return sorted(split, key=lambda job: -len(job.candidates))


def connections(options: PoolOptions) -> list[Connect]:
    """Returns functions, each of which connects to one of the hosts that the options name, this machine first."""
    named = places(options.pool) or [HostAddress("local", workers=options.workers)]
    here = [partial(_here, host.workers) for host in named if host.kind == "local"]
    return here + [one for host in named if host.kind == "ray" for one in ray_hosts.connections(host, options.target)]


def _here(workers: int, options: WorkerOptions) -> EvaluationHost:
    return LocalHost(replace(options, count=workers))
