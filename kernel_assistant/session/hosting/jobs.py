"""The jobs of the host: submits, joins, watches and cancels them; puts jobs that a crash interrupted back into their
queue."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from kernel_assistant.config import Settings
from kernel_assistant.errors import EXIT_INTERNAL, Cancelled, KernelAssistantError, StoreError, UsageError
from kernel_assistant.events import AnyEvent, JobFailed, JobFinished, JobQueued, JobStarted, Warned
from kernel_assistant.records import JobOutcome, KernelTask, OptimizeResult, Step
from kernel_assistant.session.hosting.event_log import EventLog, log_path
from kernel_assistant.session.hosting.job_queue import JobQueue, QueuedJob
from kernel_assistant.session.hosting.listening import check_listens
from kernel_assistant.session.hosting.pending_writes import PendingWrites
from kernel_assistant.session.hosting.workers import WorkerPool
from kernel_assistant.session.wire import HostShuttingDown
from kernel_assistant.store import JobKind, JobOptions, JobRow, JobState, Store

_log = logging.getLogger(__name__)

#: File in the state folder with the output of users' modules.
WORKER_LOG = "worker.log"


@dataclass(frozen=True)
class JobServices:
    """The objects that the host gives to a running job. `device` is a name such as "cuda:1"; `folder` is the job's own
    folder; `resume_steps` are the steps that were measured before a crash; `said` grows with the user's messages to a
    model; `unwritten` repeats writes that failed because the disk was full."""

    job: str
    device: str
    folder: Path
    settings: Settings
    store: Store
    workers: WorkerPool
    resume_steps: tuple[Step, ...]
    said: Sequence[str] = ()
    unwritten: PendingWrites = field(default_factory=PendingWrites)


class RunJob(Protocol):
    """A function that runs one job, calls `emit` with its events, and stops soon after `cancel` is set. Raises
    KernelAssistantError if there is no result."""

    def __call__(
        self,
        task: KernelTask,
        options: JobOptions,
        *,
        emit: Callable[[AnyEvent], None],
        cancel: threading.Event,
        services: JobServices,
    ) -> OptimizeResult: ...


@dataclass(frozen=True)
class Submitted:
    """The answer to a submission. `joined`: the job was already queued or running; `resumed`: the job was interrupted
    and is queued again; `ahead`: the number of jobs that run before it."""

    job: str
    joined: bool = False
    resumed: bool = False
    ahead: int = 0


class JobTable:
    """Owns the job queues, the logs of unfinished jobs and the store."""

    def __init__(self, settings: Settings, run: RunJob, lane_of: Callable[[KernelTask], str]) -> None:
        self._settings = settings
        self._run_job = run
        self._lane_of = lane_of
        self.store = Store(settings.state_dir)
        self._workers = WorkerPool(settings.worker_idle_seconds, settings.state_dir / WORKER_LOG)
        self._lock = threading.RLock()
        self._lanes: dict[str, JobQueue] = {}
        self._jobs: dict[str, QueuedJob] = {}
        self._closed = False
        self._unwritten = PendingWrites()
        #: Jobs that have ended but whose end is not in the store yet.
        self._ended: dict[str, JobState] = {}
        for job in self.store.mark_interrupted():
            _log.info("job %s was interrupted", job)

    @property
    def active(self) -> int:
        """The number of queued and running jobs."""
        with self._lock:
            return len(self._jobs)

    def submit(self, task: KernelTask, options: JobOptions) -> Submitted:
        """Queues a job for `task`, or joins or queues again an unfinished job with the same task and options. Raises
        HostShuttingDown if no more jobs are accepted."""
        lane = self._lane_of(task)
        with self._lock:
            self._refuse_when_closed()
            row = self.store.find_unfinished(task, options)
            if row is None:
                return self._enqueue(self.store.add_job(task, options, lane), resumed=False)
            if row.id in self._jobs:
                return Submitted(row.id, joined=True, ahead=self._ahead(row.device, row.id))
            return self._enqueue(row, resumed=True)

    def watch(self, job: str) -> EventLog:
        """Returns the log of `job`; queues an interrupted job again. Raises UsageError for an unknown job."""
        with self._lock:
            row = self.store.job(job)
            if row.id not in self._jobs and row.state is JobState.interrupted:
                self._refuse_when_closed()
                self._enqueue(row, resumed=True)
            if row.id in self._jobs:
                return self._jobs[row.id].log
        log = EventLog(self._log_path(row.id), row.id)
        if not log.ended:
            # The disk was full when the job ended: its last event is made from the store.
            _append_quietly(log, _final_event(row))
        return log

    def cancel(self, job: str) -> JobState:
        """Cancels `job`. A queued or interrupted job becomes cancelled at once; a running job is asked to stop, and its
        state is running until it has stopped; a job that has ended does not change. Returns the state of the job.
        Raises UsageError for an unknown job."""
        with self._lock:
            row = self.store.job(job)
            live = self._jobs.get(row.id)
            if live is None:
                return self._cancel_interrupted(row)
            live.cancel.set()
            waiting = self._lanes[row.device].remove(live)
        if waiting:
            self._finish(live, JobFinished(result=empty_result(row, JobOutcome.cancelled)), JobState.cancelled)
        return self.store.job(row.id).state

    def rows(self, *, limit: int, states: Sequence[JobState]) -> list[JobRow]:
        """Returns rows of the store, newest first. A job that has ended has its final state here, even if that state
        could not be written to the store yet."""
        rows = self.store.jobs(limit=limit, states=states)
        return [msgspec.structs.replace(row, state=self._ended.get(row.id, row.state)) for row in rows]

    def say(self, job: str, text: str) -> None:
        """Sends a message to the models of a queued or running job. Raises UsageError if the job has ended, or if no
        model that reads messages works on it."""
        with self._lock:
            row = self.store.job(job)
            live = self._jobs.get(row.id)
            if live is None:
                raise UsageError(f"job {row.id} does not run", "kernel-assistant jobs lists those that do")
            check_listens(row, self._settings)
            live.said.append(text)

    def retire(self) -> bool:
        """Accepts no more jobs from now on, unless a job is queued or running. Returns whether new jobs are refused."""
        with self._lock:
            self._closed = self._closed or not self._jobs
            return self._closed

    def close(self, timeout: float = 5.0) -> None:
        """Accepts no more jobs, cancels all and waits up to `timeout` seconds for their end."""
        with self._lock:
            self._closed = True
            jobs = list(self._jobs)
        for job in jobs:
            self.cancel(job)
        deadline = time.monotonic() + timeout
        for lane in self._lanes.values():
            lane.close(max(0.1, deadline - time.monotonic()))
        self._workers.close()
        self._unwritten.close()
        self.store.close()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise HostShuttingDown("the session host is about to end", "try again")

    def _cancel_interrupted(self, row: JobRow) -> JobState:
        if row.state is not JobState.interrupted:
            return row.state
        result = empty_result(row, JobOutcome.cancelled)
        log = EventLog(self._log_path(row.id), row.id)
        log.append(JobFinished(result=result))
        self.store.mark_ended(row.id, JobState.cancelled, result=result)
        return JobState.cancelled

    def _enqueue(self, row: JobRow, *, resumed: bool) -> Submitted:
        log = EventLog(self._log_path(row.id), row.id)
        job = QueuedJob(row, log, resumed=resumed)
        ahead = self._ahead(row.device, row.id)
        try:
            log.append(JobQueued(task=row.task.name, target=row.task.target, position=ahead))
            if resumed:
                self.store.mark_queued(row.id)
        except StoreError as error:
            self._mark_ended(row.id, JobState.failed, None, error.cause, error.next_step)
            raise
        self._jobs[row.id] = job
        if row.device not in self._lanes:
            self._lanes[row.device] = JobQueue(row.device, self._run)
        self._lanes[row.device].add(job)
        return Submitted(row.id, resumed=resumed, ahead=ahead)

    def _ahead(self, device: str, job: str) -> int:
        return sum(other.row.device == device and int(name) < int(job) for name, other in self._jobs.items())

    def _run(self, job: QueuedJob) -> None:
        """Runs one job in the queue's thread. The job ends with exactly one final event, even after an exception."""
        try:
            result = self._attempt(job)
        except Cancelled:
            self._finish(job, JobFinished(result=empty_result(job.row, JobOutcome.cancelled)), JobState.cancelled)
        except KernelAssistantError as error:
            _log.warning("job %s: %s", job.row.id, error.cause)
            self._finish(job, _failure(error), JobState.failed)
        except Exception as error:  # noqa: BLE001 - a bug in one job must not end its queue; it is logged and reported
            _log.exception("job %s broke", job.row.id)
            self._finish(job, _bug(error), JobState.failed)
        else:
            cancelled = result.outcome is JobOutcome.cancelled
            self._finish(job, JobFinished(result=result), JobState.cancelled if cancelled else JobState.done)

    def _attempt(self, job: QueuedJob) -> OptimizeResult:
        row = job.row
        self.store.mark_running(row.id)
        job.log.append(_started(row, resumed=job.resumed))
        services = JobServices(
            job=row.id,
            device=row.device,
            folder=self._settings.jobs_dir / row.id,
            settings=self._settings,
            store=self.store,
            workers=self._workers,
            resume_steps=self.store.steps(row.id) if job.resumed else (),
            said=job.said,
            unwritten=self._unwritten,
        )

        def emit(event: AnyEvent) -> None:
            job.log.append(event)

        for line in self.store.news():
            emit(Warned(message=line))
        return self._run_job(row.task, row.options, emit=emit, cancel=job.cancel, services=services)

    def _finish(self, job: QueuedJob, event: JobFinished | JobFailed, state: JobState) -> None:
        result = event.result if isinstance(event, JobFinished) else None
        failure = (event.cause, event.next_step) if isinstance(event, JobFailed) else ("", "")
        self._mark_ended(job.row.id, state, result, *failure)
        # Removed before the last event is sent, so that a client that has seen the event finds the host idle.
        with self._lock:
            self._jobs.pop(job.row.id, None)
        _append_quietly(job.log, event)

    def _mark_ended(
        self, job: str, state: JobState, result: OptimizeResult | None, error: str, next_step: str = ""
    ) -> None:
        """Writes a job's final state to the store; if the disk is full, it is written later. `rows` already reports the
        final state."""

        def write() -> None:
            self.store.mark_ended(job, state, result=result, error=error, next_step=next_step)
            self._ended.pop(job, None)

        self._ended[job] = state
        failure = self._unwritten.write(write)
        if failure is not None:
            _log.warning("job %s: its end is not in the store yet: %s", job, failure.cause)

    def _log_path(self, job: str) -> Path:
        return log_path(self._settings.jobs_dir, job)


def empty_result(row: JobRow, outcome: JobOutcome) -> OptimizeResult:
    """Returns the result of a job that ended before anything was measured."""
    return OptimizeResult(
        task=row.task.name,
        target=row.task.target,
        device=row.device,
        outcome=outcome,
        best=None,
        evaluations=0,
        seconds=max(0.0, time.time() - row.started) if row.started else 0.0,
        stop_reason=outcome.value,
        artifacts={"job": row.id},
    )


def _started(row: JobRow, *, resumed: bool) -> JobStarted:
    """Returns the JobStarted event of a job. Its budget is 0 for a job that does not search: it has no time limit."""
    budget = row.options.budget if row.options.kind is JobKind.optimize else 0.0
    return JobStarted(device=row.device, resumed=resumed, budget=budget)


def _append_quietly(log: EventLog, event: JobFinished | JobFailed) -> None:
    try:
        log.append(event)
    except StoreError as failure:
        # Watchers get the event from memory, although it cannot be written to disk.
        _log.warning("job %s: %s", log.job, failure.cause)


def _final_event(row: JobRow) -> JobFinished | JobFailed:
    if row.result is not None:
        return JobFinished(result=row.result)
    cause = row.error or "the job ended without a word"
    return JobFailed(cause=cause, next_step=row.next_step, exit_code=EXIT_INTERNAL)


def _failure(error: KernelAssistantError) -> JobFailed:
    return JobFailed(cause=error.cause, next_step=error.next_step, exit_code=error.exit_code, detail=error.detail)


def _bug(error: Exception) -> JobFailed:
    return JobFailed(
        cause=f"internal {type(error).__name__}: {error}",
        next_step="report this with the host's log (kernel-assistant doctor says where)",
        exit_code=EXIT_INTERNAL,
        detail=traceback.format_exc(),
    )
