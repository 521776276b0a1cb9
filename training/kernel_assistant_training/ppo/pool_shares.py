"""Which machine has which job of a round. Bookkeeping alone: nothing here waits, starts or ends anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernel_assistant.errors import InternalError
from kernel_assistant.records import Evaluation
from kernel_assistant_training.ppo.pool_events import Began, Ended, Event, Judged, TaskOpened
from kernel_assistant_training.ppo.pool_machine import Machine
from kernel_assistant_training.ppo.pool_worker import Job

#: Jobs for each worker beyond the one that it is at: what is built while another is judged.
AHEAD = 3
#: Of a task that is cut into parts. Opening it costs as much as judging some ten candidates.
LEAST_PART = 8
#: Machines that are lost at a task before it is given up, and that are lost with it while it waits there.
MOST_LOSSES, MOST_MOVES = 2, 8


@dataclass(frozen=True)
class Damage:
    """What the loss of a machine came to."""

    void: int
    moved: int


class Shares:
    """For one thread. Numbers of jobs are never used again, so that what a lost machine still says means nothing."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._waiting: list[Job] = []
        self._given: dict[Machine, dict[int, Job]] = {}
        self._begun: set[int] = set()
        self.workers: dict[Machine, int] = {}
        self._open: dict[Machine, tuple[str, ...]] = {}

    def add(self, jobs: Sequence[Job]) -> None:
        self._waiting += jobs

    def join(self, machine: Machine) -> None:
        self.workers[machine], self._given[machine] = machine.greeting.workers, {}

    @property
    def machines(self) -> list[Machine]:
        return list(self.workers)

    @property
    def done(self) -> bool:
        return not self._waiting and not any(self._given.values())

    def handed(self) -> Iterator[tuple[Machine, int, Job]]:
        """What is to be given to whom now: to the machine with the least to do first."""
        while self._waiting and self.workers:
            ahead = min(AHEAD, len(self._waiting) // sum(self.workers.values()))
            machine = min(self.workers, key=lambda one: len(self._given[one]) / self.workers[one])
            if len(self._given[machine]) >= self.workers[machine] * (1 + ahead):
                return
            job = self._chosen(machine)
            self._waiting.remove(job)
            number = next(self._numbers)
            self._given[machine][number] = job
            # Of a job that another machine was lost at, what is left.
            yield machine, number, Job(job.task, job.candidates[len(job.found) :])

    def apply(self, machine: Machine, event: Event) -> Job | None:
        """The job that has an answer more. Raises InternalError for an answer to something else than what was asked."""
        number = getattr(event, "job", None)
        job = self._given.get(machine, {}).get(number) if isinstance(number, int) else None
        if job is None or number is None:
            return None
        if isinstance(event, Began):
            self._begun.add(number)
        elif isinstance(event, TaskOpened):
            job.opened = event.opened()
        elif isinstance(event, Judged):
            job.found.append(_answer(job, event.evaluation))
            return job
        elif isinstance(event, Ended):
            if len(job.found) != len(job.candidates):
                raise InternalError("it ended a job without all answers")
            job.why, self._open[machine] = event.why, event.open
            del self._given[machine][number]
            self._begun.discard(number)
        return None

    def lose(self, machine: Machine, why: str) -> Damage:
        """What it was at is void, all else waits again."""
        self.workers.pop(machine, None)
        self._open.pop(machine, None)
        void, moved = 0, []
        for number, job in self._given.pop(machine, {}).items():
            begun = number in self._begun
            self._begun.discard(number)
            job.losses, job.moves = job.losses + begun, job.moves + 1
            last = job.losses >= MOST_LOSSES or job.moves >= MOST_MOVES
            left = len(job.candidates) - len(job.found)
            given_up = left if last else min(left, int(begun))
            job.found += [None] * given_up
            void += given_up
            if last or (left and given_up == left):
                job.why = why
            else:
                moved.append(job)
        self._waiting[:0] = moved
        return Damage(void, len(moved))

    def abandon(self) -> None:
        """A round that failed: nobody waits for anything any more."""
        self._waiting.clear()
        for given in self._given.values():
            given.clear()
        self._begun.clear()

    def _chosen(self, machine: Machine) -> Job:
        """One whose task the machine has open and is not given already, else the first."""
        open_there = self._open.get(machine, ())
        mine = (job for job in self._waiting if open_there and job.task_hash in open_there)
        return next(mine, self._waiting[0])


def parts(jobs: Sequence[Job], workers: int) -> list[Job]:
    """Jobs of many candidates cut, so that all workers have something to do."""
    if workers < 2:
        return list(jobs)
    count = sum(len(job.candidates) for job in jobs)
    most = max(LEAST_PART, -(-count // (2 * workers)))
    return [
        Job(job.task, job.candidates[first : first + most])
        for job in jobs
        for first in range(0, len(job.candidates), most)
    ]


def _answer(job: Job, found: Evaluation | None) -> Evaluation | None:
    if len(job.found) >= len(job.candidates):
        raise InternalError("it answered more than it was asked")
    place = len(job.found)
    wanted = job.hashes[place], job.candidates[place][1]
    if found is not None and (found.candidate, found.tier) != wanted:
        raise InternalError(f"it answered for another candidate: {found.candidate}, not {wanted[0]}")
    return found
