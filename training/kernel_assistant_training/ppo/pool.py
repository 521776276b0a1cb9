"""The pool: workers here and on other machines that judge candidates for training, each identical one once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from kernel_assistant.records import Candidate, Evaluation, Outcome, Stage, Tier
from kernel_assistant.records.codec import Record
from kernel_assistant.sandbox.choose import choose
from kernel_assistant_training.episodes.lines import Lines, read_lines
from kernel_assistant_training.ppo import pool_ray, pool_ssh
from kernel_assistant_training.ppo.pool_events import StationOptions
from kernel_assistant_training.ppo.pool_fleet import Fleet
from kernel_assistant_training.ppo.pool_kind import device_kind
from kernel_assistant_training.ppo.pool_machine import Hear, Here, Machine, Member
from kernel_assistant_training.ppo.pool_places import Place, places
from kernel_assistant_training.ppo.pool_shares import parts
from kernel_assistant_training.ppo.pool_worker import Job, Opened, PoolWorker
from kernel_assistant_training.ppo.tasks import Task

#: By which machines say that they are there, of the seconds after which they count as lost.
BEATS = 4
#: Of the judge at one candidate: the first may be the machine's.
LOSSES = 2


@dataclass(frozen=True)
class PoolOptions:
    """`out` gets evaluations.jsonl and logs, `cache` has the device's bandwidths. `quick_only` sets less memory and
    time aside, for rewards that need no full protocol; `builders` compilers run at once. `pool` are places as on the
    command line, none: `workers` of this machine. A machine that says nothing for `silent_seconds` is lost; a round
    without any waits `patience_seconds` for one to come back. What is in the files `known`, those of earlier runs, is
    not judged again."""

    target: str
    out: Path
    cache: Path
    python: str
    workers: int = 1
    builders: int = 2
    sandbox: str = "auto"
    quick_only: bool = True
    pool: tuple[str, ...] = ()
    silent_seconds: float = 20.0
    patience_seconds: float = 120.0
    known: tuple[Path, ...] = ()
    tell: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: T201 - for people


@dataclass(frozen=True)
class Asked:
    """A candidate for a task that is to be judged."""

    task: Task
    candidate: Candidate
    tier: Tier = Tier.quick

    @property
    def key(self) -> tuple[str, str, str]:
        """The task itself, not its canonical graph: that is the same at all sizes, what it takes is not."""
        return self.task.kernel_task.hash(), self.candidate.hash(), self.tier.value


class Known(Record, frozen=True, kw_only=True):
    """A line of evaluations.jsonl. `task` is the hash of a `KernelTask`, `device` the kind that it was judged on."""

    task: str
    evaluation: Evaluation
    device: str = ""


class Pool:
    """A context manager. For one thread."""

    def __init__(self, options: PoolOptions) -> None:
        self.sandbox, self._tell = choose(options.sandbox), options.tell
        asked = StationOptions(
            target=options.target,
            sandbox=options.sandbox,
            quick_only=options.quick_only,
            beat_seconds=options.silent_seconds / BEATS,
        )
        self._lines = Lines(options.out / "evaluations.jsonl")
        try:
            self._fleet = Fleet(members(options), asked, options.tell, options.patience_seconds)
        except BaseException:
            self._lines.close()
            raise
        self.device = self._fleet.greeting.device
        self._kind = device_kind(self.device)
        self._losses: Counter[tuple[str, str, str]] = Counter()
        self._known: dict[tuple[str, str, str], Evaluation] = {
            (one.task, one.evaluation.candidate, one.evaluation.tier.value): one.evaluation
            for file in (*options.known, options.out / "evaluations.jsonl")
            for one in read_lines(file, Known)
            if one.device == self._kind
        }
        self._opened: dict[str, Opened] = {}
        self.judged = self.repeated = self.void = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def workers(self) -> list[PoolWorker]:
        """Those on this machine."""
        return [one for machine in self._fleet.machines if isinstance(machine, Here) for one in machine.station.workers]

    def open(self, tasks: Collection[Task]) -> dict[str, Opened]:
        """Each task's graph, facts and times of eager PyTorch, by key: those of its first opening. Those that cannot be
        judged are left out, and people are told why."""
        jobs = [Job(task, ()) for task in tasks if task.kernel_task.hash() not in self._opened]
        self._fleet.run(jobs, self._keep)
        for job in jobs:
            if job.opened is None:
                self._tell(f"task {job.task.key} cannot be judged: {job.why}")
        self._opened |= {job.task.kernel_task.hash(): job.opened for job in jobs if job.opened is not None}
        found = {task.key: self._opened.get(task.kernel_task.hash()) for task in tasks}
        return {key: opened for key, opened in found.items() if opened is not None}

    def judge(self, asked: Sequence[Asked]) -> list[Evaluation | None]:
        """In order; None where the judge was lost at it, for the first time: whatever loses it again is at fault; and
        where other work disturbed every measurement. Raises DeviceError where no worker is left."""
        keys = [one.key for one in asked]
        fresh = {key: one for key, one in zip(keys, asked, strict=True) if key not in self._known}
        self.repeated += len(asked) - len(fresh)
        by_task: dict[str, list[Asked]] = {}
        for key, one in fresh.items():
            by_task.setdefault(key[0], []).append(one)
        jobs = [Job(some[0].task, tuple((one.candidate, one.tier) for one in some)) for some in by_task.values()]
        jobs = parts(jobs, self._fleet.workers)
        self._fleet.run(jobs, self._keep)
        for job in jobs:
            self.judged += len(job.found)
            for place, found in enumerate(job.found):
                if found is None and place < job.tried:
                    self._lose(job, place)
                elif found is None or found.outcome is Outcome.inconclusive:
                    self.void += 1
        return [self._known.get(key) for key in keys]

    def close(self) -> None:
        self._fleet.close()
        self._lines.close()

    def _keep(self, job: Job) -> None:
        """The newest answer of a job, for another start. What is void or inconclusive is judged again then."""
        place, found = len(job.found) - 1, job.found[-1]
        if found is not None and found.outcome is not Outcome.inconclusive:
            key = _key(job, place)
            self._known[key] = found
            self._lines.add(Known(task=key[0], evaluation=found, device=self._kind))

    def _lose(self, job: Job, place: int) -> None:
        key, (candidate, tier) = _key(job, place), job.candidates[place]
        self._losses[key] += 1
        if self._losses[key] < LOSSES:
            self.void += 1
            return
        # Void it would be neither learned from nor refused, however often it is written.
        found = Evaluation(
            candidate=candidate.hash(),
            tier=tier,
            outcome=Outcome.crashed,
            stage=Stage.verify,
            message=f"the judge was lost at it {LOSSES} times",
        )
        self._known[key] = found
        self._lines.add(Known(task=key[0], evaluation=found, device=self._kind))


def _key(job: Job, place: int) -> tuple[str, str, str]:
    """See `Asked.key`."""
    return job.task_hash, job.hashes[place], job.candidates[place][1].value


def members(options: PoolOptions) -> list[Member]:
    """The machines that the options name, this one first."""
    named = places(options.pool) or [Place("local", workers=options.workers)]
    found = [_here(place, options) for place in named if place.kind == "local"]
    for place in named:
        if place.kind == "ssh":
            found.append(_there(place, options))
        elif place.kind == "ray":
            found += pool_ray.members(place.address, place.workers, options.target, options.silent_seconds)
    return found


def _here(place: Place, options: PoolOptions) -> Member:
    def connect(asked: StationOptions, hear: Hear) -> Machine:
        asked = msgspec.structs.replace(asked, workers=place.workers, builders=options.builders, python=options.python)
        return Here(asked, hear, options.out, options.cache)

    return Member("this machine", connect, far=False)


def _there(place: Place, options: PoolOptions) -> Member:
    python = place.python or options.python

    def connect(asked: StationOptions, hear: Hear) -> Machine:
        asked = msgspec.structs.replace(asked, workers=place.workers)
        return pool_ssh.connect(place.address, python, asked, hear, options.silent_seconds)

    return Member(place.address, connect)
