"""One evaluation worker: a process that stays up, with at most one task open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kernel_assistant.environment.builds.compile import Compiler
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.worker_client import DeviceOutOfMemory, WorkerClient
from kernel_assistant.errors import DeviceError, KernelAssistantError, MissingError, UsageError, WorkerError
from kernel_assistant.records import Baseline, Candidate, Evaluation, OpGraph, Outcome, Tier
from kernel_assistant.records.canonical import canonical
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
    """The tracer found another graph than the one that the task was made from."""


@dataclass(frozen=True)
class OpenedTask:
    """The facts about a task that a prompt states."""

    graph: OpGraph
    facts: dict[str, Any]
    baseline: Baseline
    device: DeviceFacts


@dataclass(eq=False)
class EvaluationJob:
    """A task with candidates. When it is done, `found` has an entry for each, None if the judge was lost at it. Without
    `opened` the task could not be opened; `why` has the reason. `losses` counts hosts that were lost while they worked
    on it, `moves` all hosts that were lost while they had it."""

    task: Task
    candidates: tuple[tuple[Candidate, Tier], ...]
    found: list[Evaluation | None] = field(default_factory=list)
    opened: OpenedTask | None = None
    why: str = ""
    losses: int = 0
    moves: int = 0

    @cached_property
    def task_hash(self) -> str:
        return self.task.kernel_task.hash()

    @cached_property
    def hashes(self) -> tuple[str, ...]:
        """The hashes of the candidates."""
        return tuple(candidate.hash() for candidate, _ in self.candidates)

    @property
    def tried(self) -> int:
        """The number of candidates that were tried: all up to the last evaluation and, if the task could be opened, the
        candidate after that.
        """
        answered = max((index + 1 for index, evaluation in enumerate(self.found) if evaluation is not None), default=0)
        return answered + 1 if self.opened else 0


def judged_with_room(judge: Callable[[], Evaluation], pause: Callable[[float], bool]) -> Evaluation:
    """Call `judge` until it does not run out of memory, at most `TRIES` times. `pause` waits, and returns True to give
    up."""
    evaluation = judge()
    for _ in range(TRIES - 1):
        if evaluation.outcome is not Outcome.out_of_memory or pause(PAUSE_SECONDS):
            break
        evaluation = judge()
    return evaluation


class EvaluationWorker:
    """Used by one thread at a time. `lost` is the reason why no process can be started any more, else "". `cache` is
    the folder with the device's bandwidths, `env` are variables of the process. If the highest tier is one without
    timing, the baseline is not timed either: its times are 0."""

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
        self._open: ExitStack | None = None
        self._environment: Environment | None = None
        self.has_open, self.lost = "", ""

    def open(self, task: Task) -> Environment:
        """The environment of a task, opened if it is not open; it stays open until another task is. Raises UsageError
        if it cannot be opened, OtherGraphError if its graph is not the expected one, WorkerError and DeviceError."""
        task_hash = task.kernel_task.hash()
        if self._environment is not None and self.has_open == task_hash:
            return self._environment
        self._shut()
        self._open = ExitStack()
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
        self.has_open, self._environment = task_hash, environment
        return environment

    def do(self, job: EvaluationJob, progress: Callable[[], None] = lambda: None) -> None:
        """Evaluate a job; afterwards every candidate has an entry, even if the process is lost. `progress` is called
        when the task is open and after each entry. If the process is lost while the task is opened, or the device lacks
        memory, the job is tried once more."""
        for last in (False, True):
            try:
                self._opened(job)
                job.why = ""
                progress()
                while len(job.found) < len(job.candidates):
                    job.found.append(self._judged(self._opened(job), *job.candidates[len(job.found)]))
                    progress()
                return
            except DeviceOutOfMemory as error:
                job.why = error.cause
                # An open task uses memory, too.
                self._shut()
                if last or self._cancel.wait(PAUSE_SECONDS):
                    break
            except UsageError as error:
                job.why = error.cause
                break
            except KernelAssistantError as error:
                job.why = error.cause
                self.renew()
                if last or self.lost:
                    break
        while len(job.found) < len(job.candidates):
            job.found.append(None)
            progress()

    def renew(self) -> None:
        """Start a new process with no task open, when the state of this one is unknown. If that fails, this worker is
        lost."""
        self.process.kill()
        self._close_task()
        try:
            self.process.restart(self._cancel)
        except KernelAssistantError as error:
            self.lost = error.cause

    def require(self) -> None:
        """Raises MissingError if this worker is lost."""
        if self.lost:
            raise MissingError(f"no worker could be started: {self.lost}", f"see {self.log.name} in {self.log.parent}")

    def close(self) -> None:
        self.process.kill()

    def _judged(self, environment: Environment, candidate: Candidate, tier: Tier) -> Evaluation | None:
        """The evaluation of the candidate; None if the process was lost. The environment restarts it and reports the
        candidate as crashed, but candidates run in a process of their own and need not be the cause.
        """
        before = self.process.process.pid
        try:
            evaluation = judged_with_room(lambda: environment.evaluate([candidate], tier)[0], self._cancel.wait)
        except (WorkerError, DeviceError):
            self.renew()
            return None
        return evaluation if self.process.process.pid == before else None

    def _opened(self, job: EvaluationJob) -> Environment:
        """The environment of a job's task."""
        environment = self.open(job.task)
        timed = self._options.most is not Tier.verify
        baseline = environment.baseline(compiled=False) if timed else UNTIMED
        job.opened = OpenedTask(environment.graph, environment.facts, baseline, environment.device)
        return environment

    def _shut(self) -> None:
        """Close the open task, if there is one; the process is restarted if it has ended."""
        if self._close_task() and not self.process.alive:
            self.renew()

    def _close_task(self) -> bool:
        """Leave the environment of the open task; returns whether there was one."""
        self.has_open, self._environment = "", None
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()
        return opened is not None
