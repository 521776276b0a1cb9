"""Manages the evaluation hosts of a pool, and their common queue of jobs."""

from __future__ import annotations

import itertools
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kernel_assistant.errors import DeviceError, InternalError, KernelAssistantError, WorkerError
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.worker import Answer, CandidateJudged, EvaluationJob, TaskOpened
from kernel_assistant_training.ppo.pool.hosts import Connect, EvaluationHost, with_bandwidths
from kernel_assistant_training.ppo.pool.kind import hold_apart, hold_together

LOOK_SECONDS = 0.5
#: Jobs for each worker whose candidates are built before it takes them.
AHEAD = 3
#: A job is given up after so many losses of the host or worker that had it.
MOST_LOSSES = 2


@dataclass(eq=False)
class WorkerSlot:
    """Worker `number` of a host. `open` is the hash of the task that the worker has open, `job` the job that it has;
    `judging`: whether the worker has opened the job's task and evaluates its candidates."""

    host: EvaluationHost
    number: int
    open: str = ""
    job: EvaluationJob | None = None
    judging: bool = False


class HostGroup:
    """Distributes jobs to the workers of all hosts. Used by one thread; each worker has a thread of its own, which
    handles one job after another. The constructor connects to all hosts; it raises the error of a host that cannot
    join, and UsageError if two hosts are of different kinds.

    If all hosts are lost during `run`, the group waits `patience_seconds` for a host to come back. `tell` is called
    with each line of text for the user.
    """

    def __init__(
        self,
        connections: Sequence[Connect],
        options: WorkerOptions,
        tell: Callable[[str], None],
        patience_seconds: float,
    ) -> None:
        self._tell, self._patience = tell, patience_seconds
        #: A thread holds this lock while it uses any attribute below.
        self._changed = threading.Condition()
        self._slots: list[WorkerSlot] = []
        self._waiting: list[EvaluationJob] = []
        #: Waiting jobs whose candidates a host builds. No other host gets them.
        self._begun: dict[EvaluationJob, EvaluationHost] = {}
        self._losses: Counter[EvaluationJob] = Counter()
        self._news: list[tuple[EvaluationJob, int]] = []
        self._hosts: list[EvaluationHost] = []
        self._restarting: set[EvaluationHost] = set()
        self._why: dict[str, str] = {}
        self._closing = False
        try:
            #: That of the first host; all others are of the same kind.
            self.greeting = self._connected(connections[0], options).greeting
            self._join(self._hosts[0])
            options = with_bandwidths(options, self.greeting)
            # At the same time, because each connection takes seconds.
            with ThreadPoolExecutor(len(connections)) as connecting:
                for host in connecting.map(self._connected, connections[1:], itertools.repeat(options)):
                    self._join(host)
        except BaseException:
            self.close()
            raise

    @property
    def hosts(self) -> set[EvaluationHost]:
        """The hosts that have workers."""
        return {slot.host for slot in self._slots}

    @property
    def workers(self) -> int:
        return len(self._slots)

    def run(self, jobs: Sequence[EvaluationJob], judged: Callable[[EvaluationJob, int], None]) -> None:
        """Runs all jobs to their end. Calls `judged` with a job and the index of each new entry in the job's
        `evaluations`. Raises DeviceError if no worker is left."""
        alone_since = None
        with self._changed:
            self._losses.clear()
            self._waiting += jobs
            self._distribute()
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(self._done, LOOK_SECONDS)
                    done = self._done()
                    news, self._news = self._news, []
                for job, index in news:
                    judged(job, index)
                if done:
                    return
                alone_since = None if self._slots else alone_since or time.monotonic()
                if alone_since and (not self._restarting or time.monotonic() - alone_since > self._patience):
                    cause = "; ".join(f"{name}: {why}" for name, why in self._why.items())
                    raise DeviceError(f"no worker is left to judge: {cause}", self._hosts[-1].hint)
        except BaseException:
            with self._changed:
                self._waiting.clear()
                self._begun.clear()
            raise

    def _done(self) -> bool:
        return not self._waiting and not any(slot.job for slot in self._slots)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._slots.clear()
            self._changed.notify_all()
        with ThreadPoolExecutor(len(self._hosts) or 1) as closing:
            list(closing.map(lambda host: host.close(), self._hosts))

    def _connected(self, connect: Connect, options: WorkerOptions) -> EvaluationHost:
        host = connect(options)
        self._hosts.append(host)
        return host

    def _join(self, host: EvaluationHost) -> None:
        hold_together(self._hosts[0].name, self.greeting, host.name, host.greeting)
        with self._changed:
            for other in self.hosts:
                hold_apart(other.name, other.greeting, host.name, host.greeting)
            joined = [WorkerSlot(host, number) for number in range(0 if self._closing else host.greeting.workers)]
            self._slots += joined
            self._distribute()
        for slot in joined:
            threading.Thread(target=self._work, args=(slot,), name="evaluation", daemon=True).start()

    def _distribute(self) -> None:
        """Gives waiting jobs to idle workers. A worker first gets a job whose task it has open, then one whose task no
        worker has open, because opening a task takes longer than evaluating a candidate. Hosts begin to build
        candidates of later jobs."""
        opened = {slot.open for slot in self._slots}
        preferences: tuple[Callable[[WorkerSlot, EvaluationJob], bool], ...] = (
            lambda slot, job: job.task_hash == slot.open,
            lambda slot, job: job.task_hash not in opened,
            lambda slot, job: True,
        )
        for fits in preferences:
            for slot in [slot for slot in self._slots if slot.job is None]:
                here = (job for job in self._waiting if self._begun.get(job, slot.host) is slot.host)
                job = next((job for job in here if fits(slot, job)), None)
                if job is not None:
                    self._waiting.remove(job)
                    # Before those of later jobs.
                    if self._begun.pop(job, None) is None:
                        slot.host.begin(job.rest)
                    slot.job, slot.open, slot.judging = job, job.task_hash, False
                    opened.add(job.task_hash)
        workers = Counter(slot.host for slot in self._slots)
        # Of several hosts each gets its part of half of the jobs: the last ones are for whoever is done first.
        each = AHEAD if len(workers) == 1 else min(AHEAD, len(self._waiting) // (2 * max(self.workers, 1)))
        for host, count in workers.items():
            room = max(0, each * count - list(self._begun.values()).count(host))
            for job in list(itertools.islice((job for job in self._waiting if job not in self._begun), room)):
                self._begun[job] = host
                host.begin(job.rest)
        self._changed.notify_all()

    def _work(self, slot: WorkerSlot) -> None:
        """Makes a worker evaluate one job after another until the worker is lost or the group closes."""
        try:
            while (job := self._next(slot)) is not None:
                for answer in slot.host.judge(slot.number, job.rest):
                    with self._changed:
                        if slot not in self._slots:
                            return
                        self._add(slot, job, answer)
                with self._changed:
                    if job.left:
                        raise InternalError("it ended a job without all answers")
                    slot.job = None
                    self._distribute()
        except KernelAssistantError as error:
            self._lose(slot, error)
        except Exception as error:  # noqa: BLE001 - the round would wait for this job for ever
            traceback.print_exc()
            self._lose(slot, InternalError(f"internal {type(error).__name__}: {error}"))

    def _next(self, slot: WorkerSlot) -> EvaluationJob | None:
        """Waits for the next job of a worker and returns it. Returns None if the worker is lost."""
        with self._changed:
            self._changed.wait_for(lambda: slot.job is not None or slot not in self._slots)
            return slot.job if slot in self._slots else None

    def _add(self, slot: WorkerSlot, job: EvaluationJob, answer: Answer) -> None:
        """Adds an answer to the job of a worker. Raises WorkerError if the answer says that the worker is lost."""
        job.add(answer)
        if isinstance(answer, TaskOpened):
            slot.judging = True
        elif isinstance(answer, CandidateJudged):
            self._news.append((job, len(job.evaluations) - 1))
        else:
            slot.open, slot.judging = "", False
            if answer.lost:
                raise WorkerError(answer.why)
            job.give_up()

    def _lose(self, slot: WorkerSlot, error: KernelAssistantError) -> None:
        """Removes a worker after a WorkerError; after another error, removes all workers of its host. The candidates
        that these workers were evaluating get no evaluation; the other candidates of their jobs return to the queue. A
        host without workers is restarted."""
        host, why = slot.host, error.cause.removeprefix(f"{slot.host.name}: ")
        with self._changed:
            if slot not in self._slots:
                return
            here = [other for other in self._slots if other.host is host]
            lost = [slot] if isinstance(error, WorkerError) else here
            self._slots = [other for other in self._slots if other not in lost]
            counts = [self._put_back(other, why) for other in lost]
            left = len(here) - len(lost)
            if not left:
                self._begun = {job: other for job, other in self._begun.items() if other is not host}
                self._why[host.name] = why
                self._restarting.add(host)
            self._distribute()
        if left:
            self._tell(f"{host.name}: one worker less, {left} left: {why}")
            return
        self._tell(
            f"{host.name} is lost: {why}; void: {_count(sum(void for void, _ in counts), 'evaluation')}, moves on: "
            f"{_count(sum(moved for _, moved in counts), 'task')}, left: {_count(self.workers, 'worker')}"
        )
        threading.Thread(target=self._restart, args=(host,), daemon=True).start()

    def _put_back(self, slot: WorkerSlot, why: str) -> tuple[int, bool]:
        """Puts the job of a lost worker back into the queue, unless it was lost too often. Returns the number of
        candidates that got None instead of an evaluation, and whether the job is in the queue again."""
        job, slot.job = slot.job, None
        if job is None:
            return 0, False
        before = len(job.evaluations)
        if slot.judging and job.left:
            job.evaluations.append(None)
        self._losses[job] += 1
        waits = self._losses[job] < MOST_LOSSES and (job.opened is None or job.left > 0)
        if waits:
            self._waiting.insert(0, job)
        else:
            job.why = job.why or why
            job.give_up()
        return len(job.evaluations) - before, waits

    def _restart(self, host: EvaluationHost) -> None:
        try:
            host.restart()
            self._join(host)
        except KernelAssistantError as error:
            if not self._closing:
                self._tell(f"{error.cause}; it is not used any more")
                host.close()
        else:
            self._why.pop(host.name, None)
            self._tell(f"{host.name}: judges again")
        self._restarting.discard(host)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
