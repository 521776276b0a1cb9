"""One evaluation worker: a process that stays alive and has at most one task open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kernel_assistant.environment.builds.compile import Compiler
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.worker_client import DeviceOutOfMemory, WorkerClient
from kernel_assistant.errors import (
    DeviceError,
    InternalError,
    KernelAssistantError,
    MissingError,
    UsageError,
    WorkerError,
)
from kernel_assistant.records import Baseline, Candidate, Evaluation, OpGraph, Outcome, Tier
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.codec import Record
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.tasks import Task

#: Devices are numbered as the driver numbers them.
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
#: Workers of a device share its memory: how often a candidate is tried that runs out of it, and the seconds between
#: tries.
TRIES, PAUSE_SECONDS = 3, 2.0
UNTIMED = Baseline(eager_ms=0.0, compile_ms=None, floor_ms=0.0)


class OtherGraphError(UsageError):
    """Raised if the graph that was traced from the module differs from the graph that the task was made from."""


@dataclass(frozen=True)
class OpenedTask:
    """The facts about an open task for prompts: graph, baseline (times of PyTorch; the full profile states them),
    device, and the judge's `facts`."""

    graph: OpGraph
    facts: dict[str, Any]
    baseline: Baseline
    device: DeviceFacts


class TaskOpened(Record, frozen=True, kw_only=True, tag=True):
    """Part of a worker's answer to a job: the task is open, and the evaluation of its candidates begins."""

    opened: OpenedTask


class CandidateJudged(Record, frozen=True, kw_only=True, tag=True):
    """Part of a worker's answer to a job: the evaluation of the next candidate, or None if the worker's process was
    lost while it evaluated the candidate."""

    evaluation: Evaluation | None


class JobFailed(Record, frozen=True, kw_only=True, tag=True):
    """The end of a worker's answer to a job: its remaining candidates are not evaluated, because the task cannot be
    opened or, if `lost`, because the worker's process cannot be started again. `why` is the reason."""

    why: str
    lost: bool


#: What a worker answers to a job, one after another.
Answer = TaskOpened | CandidateJudged | JobFailed


@dataclass(eq=False)
class EvaluationJob:
    """A task with candidates to evaluate. When the job is done, `evaluations` has for each candidate its evaluation, or
    None if the worker was lost while it evaluated the candidate. `opened` is None if the task could not be opened;
    `why` has the reason."""

    task: Task
    candidates: tuple[tuple[Candidate, Tier], ...]
    evaluations: list[Evaluation | None] = field(default_factory=list)
    opened: OpenedTask | None = None
    why: str = ""

    @cached_property
    def task_hash(self) -> str:
        return self.task.kernel_task.hash()

    @cached_property
    def hashes(self) -> tuple[str, ...]:
        """The hashes of the candidates."""
        return tuple(candidate.hash() for candidate, _ in self.candidates)

    @property
    def left(self) -> int:
        """The number of candidates that have no entry in `evaluations`."""
        return len(self.candidates) - len(self.evaluations)

    @property
    def rest(self) -> EvaluationJob:
        """A job with the same task and the candidates that have no entry in `evaluations`."""
        return EvaluationJob(self.task, self.candidates[len(self.evaluations) :])

    @property
    def tried(self) -> int:
        """The number of candidates up to the last evaluation, plus one, because the worker also tried the next
        candidate; 0 if the task could not be opened."""
        answered = max((number for number, one in enumerate(self.evaluations, 1) if one is not None), default=0)
        return answered + 1 if self.opened else 0

    def add(self, answer: Answer) -> None:
        """Adds a worker's answer to the job: sets `opened` or `why`, or appends to `evaluations`. Raises InternalError
        if the answer is an evaluation of a candidate other than the next."""
        if isinstance(answer, TaskOpened):
            self.opened, self.why = self.opened or answer.opened, ""
        elif isinstance(answer, JobFailed):
            self.why = answer.why
        else:
            evaluation, index = answer.evaluation, len(self.evaluations)
            if not self.left:
                raise InternalError("it answered more than it was asked")
            wanted = self.hashes[index], self.candidates[index][1]
            if evaluation is not None and (evaluation.candidate, evaluation.tier) != wanted:
                raise InternalError(f"it answered for another candidate: {evaluation.candidate}, not {wanted[0]}")
            self.evaluations.append(evaluation)

    def give_up(self) -> None:
        """Sets the entries of all remaining candidates to None."""
        self.evaluations += [None] * self.left


def judged_with_room(judge: Callable[[], Evaluation], pause: Callable[[float], bool]) -> Evaluation:
    """Calls `judge` until its evaluation is not out of memory, at most `TRIES` times; returns the last evaluation.
    Between calls it calls `pause` with the seconds to wait; if `pause` returns True, no further call is made."""
    evaluation = judge()
    for _ in range(TRIES - 1):
        if evaluation.outcome is not Outcome.out_of_memory or pause(PAUSE_SECONDS):
            break
        evaluation = judge()
    return evaluation


class EvaluationWorker:
    """An evaluation worker with its process, for use by one thread at a time. `lost` is the reason why its process
    cannot be started any more, else "". `has_open` is the hash of the open task, else "". `cache` is the folder with
    the device's bandwidths; `env` has environment variables of the process. If `options.most` is the tier `verify`,
    which does not time, the baseline is not timed either: its times are 0."""

    def __init__(
        self,
        options: WorkerOptions,
        number: int,
        device: DeviceFacts,
        compiler: Compiler,
        cancel: threading.Event,
        env: Mapping[str, str],
    ) -> None:
        self._options, self._device, self._compiler, self._cancel = options, device, compiler, cancel
        self.log, self.cache = options.logs / f"worker-{number:02}.log", options.cache
        self.process = WorkerClient(options.python, log=self.log, env={**ORDER, **env})
        self._open = ExitStack()
        self._environment: Environment | None = None
        self.has_open, self.lost = "", ""

    def open(self, task: Task) -> Environment:
        """Returns the environment of a task. The task is opened if necessary, and stays open until another task is
        opened. Raises UsageError if the task cannot be opened, OtherGraphError if its traced graph is not the expected
        one, WorkerError if the process is lost, and DeviceError for a problem of the device."""
        task_hash = task.kernel_task.hash()
        if self._environment is not None and self.has_open == task_hash:
            return self._environment
        self._shut()
        self.has_open = task_hash
        environment = self._open.enter_context(
            open_environment(
                task.kernel_task,
                device=self._device,
                worker=self.process,
                sandbox_mode=self._options.sandbox,
                cache_dir=self.cache,
                cancel=self._cancel,
                emit=lambda event: None,
                compiler=self._compiler,
                lock=self._options.lock,
                most=self._options.most,
                throughput=self._options.throughput,
            )
        )
        traced = canonical(environment.graph).text()
        if traced != task.canonical.text():
            raise OtherGraphError(f"another graph was traced: {traced}")
        self._environment = environment
        return environment

    def judge(self, job: EvaluationJob) -> Iterator[Answer]:
        """Evaluates all candidates of a job and yields the answers: TaskOpened (again after a second attempt), then one
        for each candidate, or JobFailed. If the process is lost, or if the device lacks memory to open the task, a
        second attempt is made with the remaining candidates."""
        done, why = 0, ""
        for last in (False, True):
            try:
                yield TaskOpened(opened=self._opened(job.task)[1])
                for candidate, tier in job.candidates[done:]:
                    evaluation = self._judged(self._opened(job.task)[0], candidate, tier)
                    done += 1
                    yield CandidateJudged(evaluation=evaluation)
                return
            except DeviceOutOfMemory as error:
                why = error.cause
                # An open task uses memory, too.
                self._shut()
                if last or self._cancel.wait(PAUSE_SECONDS):
                    break
            except UsageError as error:
                why = error.cause
                break
            except KernelAssistantError as error:
                why = error.cause
                self.renew()
                if last or self.lost:
                    break
        yield JobFailed(why=self.lost or why, lost=bool(self.lost))

    def do(self, job: EvaluationJob) -> None:
        """Evaluates a job and adds all answers to it. Afterwards every candidate has an entry in `evaluations`, None if
        it was not evaluated, even if the process is lost."""
        for answer in self.judge(job):
            job.add(answer)
        job.give_up()

    def renew(self) -> None:
        """Replaces the process, whose state is unknown, by a new process with no task open. If that fails, sets
        `lost`."""
        self.process.kill()
        self._close_task()
        try:
            self.process.restart(self._cancel)
        except KernelAssistantError as error:
            self.lost = error.cause

    def require(self) -> None:
        """Raises MissingError if this worker's process cannot be started any more."""
        if self.lost:
            raise MissingError(f"no worker could be started: {self.lost}", f"see {self.log.name} in {self.log.parent}")

    def close(self) -> None:
        self.process.kill()

    def _judged(self, environment: Environment, candidate: Candidate, tier: Tier) -> Evaluation | None:
        """Returns the evaluation of the candidate, or None if the worker's process was lost. The environment restarts a
        lost process and reports the candidate as crashed, but candidates run in another process, so the candidate need
        not be the cause."""
        before = self.process.process.pid
        try:
            evaluation = judged_with_room(lambda: environment.evaluate([candidate], tier)[0], self._cancel.wait)
        except (WorkerError, DeviceError, MissingError):
            self.renew()
            return None
        return evaluation if self.process.process.pid == before else None

    def _opened(self, task: Task) -> tuple[Environment, OpenedTask]:
        environment = self.open(task)
        timed = self._options.most is not Tier.verify
        baseline = environment.baseline(compiled=False) if timed else UNTIMED
        return environment, OpenedTask(environment.graph, environment.facts, baseline, environment.device)

    def _shut(self) -> None:
        """Closes the open task, if there is one. Restarts the process if it has ended."""
        if self.has_open:
            self._close_task()
            if not self.process.alive:
                self.renew()

    def _close_task(self) -> None:
        self.has_open, self._environment = "", None
        self._open.close()
