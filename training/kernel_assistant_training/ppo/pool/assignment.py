"""Which evaluation host has which job of a round. Bookkeeping only: nothing here waits, or starts or ends a process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernel_assistant.errors import InternalError
from kernel_assistant.records import Evaluation
from kernel_assistant_training.evaluation.worker import EvaluationJob
from kernel_assistant_training.ppo.pool.events import CandidateJudged, Event, JobBegan, JobEnded, TaskOpened
from kernel_assistant_training.ppo.pool.host import EvaluationHost

#: Further jobs for each worker, whose candidates are built while one is evaluated.
AHEAD = 3
#: Smallest number of candidates in a part of a split job: opening a task costs as much as evaluating about ten.
LEAST_PART = 8
#: A job is given up after so many hosts were lost while they worked on it, or while they had it.
MOST_LOSSES, MOST_MOVES = 2, 8


class JobAssignment:
    """Used by one thread. Job numbers are never reused, so that late messages of a lost host are ignored."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._waiting: list[EvaluationJob] = []
        self._given: dict[EvaluationHost, dict[int, EvaluationJob]] = {}
        self._begun: set[int] = set()
        self.workers: dict[EvaluationHost, int] = {}
        self._open: dict[EvaluationHost, tuple[str, ...]] = {}

    def add(self, jobs: Sequence[EvaluationJob]) -> None:
        self._waiting += jobs

    def join(self, machine: EvaluationHost) -> None:
        self.workers[machine], self._given[machine] = machine.greeting.workers, {}

    @property
    def machines(self) -> list[EvaluationHost]:
        return list(self.workers)

    @property
    def done(self) -> bool:
        return not self._waiting and not any(self._given.values())

    def handed(self) -> Iterator[tuple[EvaluationHost, int, EvaluationJob]]:
        """Assigns waiting jobs, to the least busy host first, and yields (host, number, job) for each."""
        while self._waiting and self.workers:
            ahead = min(AHEAD, len(self._waiting) // sum(self.workers.values()))
            machine = min(self.workers, key=lambda one: len(self._given[one]) / self.workers[one])
            if len(self._given[machine]) >= self.workers[machine] * (1 + ahead):
                return
            job = self._chosen(machine)
            self._waiting.remove(job)
            number = next(self._numbers)
            self._given[machine][number] = job
            # Only the rest of a job that a lost host had begun.
            yield machine, number, EvaluationJob(job.task, job.candidates[len(job.found) :])

    def apply(self, machine: EvaluationHost, event: Event) -> EvaluationJob | None:
        """Update a job from an event; returns it if it got another evaluation. Raises InternalError for an evaluation
        of another candidate."""
        number = getattr(event, "job", None)
        job = self._given.get(machine, {}).get(number) if isinstance(number, int) else None
        if job is None or number is None:
            return None
        if isinstance(event, JobBegan):
            self._begun.add(number)
        elif isinstance(event, TaskOpened):
            job.opened = event.opened
        elif isinstance(event, CandidateJudged):
            job.found.append(_answer(job, event.evaluation))
            return job
        elif isinstance(event, JobEnded):
            if len(job.found) != len(job.candidates):
                raise InternalError("it ended a job without all answers")
            job.why, self._open[machine] = event.why, event.open
            del self._given[machine][number]
            self._begun.discard(number)
        return None

    def lose(self, machine: EvaluationHost, why: str) -> tuple[int, int]:
        """Remove a host: the candidates under evaluation are void, all others wait again. Returns the numbers of void
        candidates and of jobs that move to other hosts."""
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
        return void, len(moved)

    def abandon(self) -> None:
        """Forget all jobs, after a round that failed."""
        self._waiting.clear()
        for given in self._given.values():
            given.clear()
        self._begun.clear()

    def _chosen(self, machine: EvaluationHost) -> EvaluationJob:
        """A waiting job whose task the host has open, else the first one."""
        open_there = self._open.get(machine, ())
        mine = (job for job in self._waiting if open_there and job.task_hash in open_there)
        return next(mine, self._waiting[0])


def parts(jobs: Sequence[EvaluationJob], workers: int) -> list[EvaluationJob]:
    """Jobs, with those of many candidates split so that all workers are busy."""
    if workers < 2:
        return list(jobs)
    count = sum(len(job.candidates) for job in jobs)
    most = max(LEAST_PART, -(-count // (2 * workers)))
    return [
        EvaluationJob(job.task, job.candidates[first : first + most])
        for job in jobs
        for first in range(0, len(job.candidates), most)
    ]


def _answer(job: EvaluationJob, evaluation: Evaluation | None) -> Evaluation | None:
    if len(job.found) >= len(job.candidates):
        raise InternalError("it answered more than it was asked")
    index = len(job.found)
    wanted = job.hashes[index], job.candidates[index][1]
    if evaluation is not None and (evaluation.candidate, evaluation.tier) != wanted:
        raise InternalError(f"it answered for another candidate: {evaluation.candidate}, not {wanted[0]}")
    return evaluation
