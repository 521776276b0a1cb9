"""One worker of the pool: a warm process, with at most one task open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from kernel_assistant.environment.compile import Compiler
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.worker_client import NoMemory, Worker
from kernel_assistant.errors import DeviceError, KernelAssistantError, UsageError, WorkerError
from kernel_assistant.records import Baseline, Candidate, Evaluation, OpGraph, Outcome, Tier
from kernel_assistant.records.canonical import canonical
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.worker.device_lock import DeviceLock
from kernel_assistant_training.ppo.tasks import Task

#: Devices are numbered as the driver numbers them.
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
#: Workers of a device share its memory: how often a candidate is judged that found none left, with how many seconds
#: between.
TRIES, PAUSE_SECONDS = 3, 2.0


@dataclass(frozen=True)
class Opened:
    """What a prompt says of a task."""

    graph: OpGraph
    facts: dict[str, Any]
    baseline: Baseline
    device: DeviceFacts


@dataclass(eq=False)
class Job:
    """A task with candidates; `found` has one entry for each once it is done, None where the judge was lost at it.
    Without `opened` the task cannot be judged, and `why` says so. `losses` counts machines that were lost at it,
    `moves` those that were lost with it, begun or not."""

    task: Task
    candidates: tuple[tuple[Candidate, Tier], ...]
    found: list[Evaluation | None] = field(default_factory=list)
    opened: Opened | None = None
    why: str = ""
    losses: int = 0
    moves: int = 0

    @cached_property
    def task_hash(self) -> str:
        return self.task.kernel_task.hash()

    @cached_property
    def hashes(self) -> tuple[str, ...]:
        """Of the candidates."""
        return tuple(candidate.hash() for candidate, _ in self.candidates)

    @property
    def tried(self) -> int:
        """How many of the candidates a judge was at: of those at the end without an answer the first, if the task
        could be opened at all."""
        answered = max((place + 1 for place, found in enumerate(self.found) if found is not None), default=0)
        return answered + 1 if self.opened else 0


def judged_with_room(judge: Callable[[], Evaluation], pause: Callable[[float], bool]) -> Evaluation:
    """What `judge` says once there is memory for it, or behind `TRIES`. `pause` waits; true ends it."""
    found = judge()
    for _ in range(TRIES - 1):
        if found.outcome is not Outcome.out_of_memory or pause(PAUSE_SECONDS):
            break
        found = judge()
    return found


class PoolWorker:
    """Used by one thread at a time. `lost` says why no process could be started any more; `cache` is the folder with
    the device's bandwidths; `env` are variables of the process. `lock`, `quick_only` and `throughput` as `Environment`
    has them."""

    def __init__(
        self,
        device: DeviceFacts,
        *,
        python: str,
        log: Path,
        cache: Path,
        sandbox: str,
        compiler: Compiler,
        quick_only: bool,
        cancel: threading.Event,
        lock: DeviceLock | None = None,
        throughput: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._device, self._sandbox, self._compiler = device, sandbox, compiler
        self._lock, self._quick_only, self._throughput, self._cancel = lock, quick_only, throughput, cancel
        self.process = Worker(python, log=log, env={**ORDER, **(env or {})})
        self._open: ExitStack | None = None
        self._environment: Environment | None = None
        self.has_open, self.lost = "", ""
        self.cache = cache

    def do(self, job: Job, progress: Callable[[], None] = lambda: None) -> None:
        """Whatever happens to the process, every candidate has an entry afterwards. `progress` is called once the task
        is open and for each entry. The first time it costs nothing that a process is lost while the task is opened, or
        that the device has no room for it."""
        for last in (False, True):
            try:
                self._opened(job)
                job.why = ""
                progress()
                while len(job.found) < len(job.candidates):
                    job.found.append(self._judged(self._opened(job), *job.candidates[len(job.found)]))
                    progress()
                return
            except NoMemory as error:
                job.why = error.cause
                # What is open holds memory, too.
                self._shut()
                if last or self._cancel.wait(PAUSE_SECONDS):
                    break
            except UsageError as error:
                job.why = error.cause
                break
            except KernelAssistantError as error:
                job.why = error.cause
                self._start_anew()
                if last or self.lost:
                    break
        while len(job.found) < len(job.candidates):
            job.found.append(None)
            progress()

    def renew(self) -> None:
        """A fresh process, where nobody knows in what state this one is."""
        self._start_anew()

    def close(self) -> None:
        self.process.kill()

    def _judged(self, environment: Environment, candidate: Candidate, tier: Tier) -> Evaluation | None:
        """None where the process was lost. The environment, which starts it anew, calls such a candidate crashed; but
        it runs in a process of its own, and need not be at fault."""
        before = self.process.process.pid
        try:
            found = judged_with_room(lambda: environment.evaluate([candidate], tier)[0], self._cancel.wait)
        except (WorkerError, DeviceError):
            self._start_anew()
            return None
        return found if self.process.process.pid == before else None

    def _opened(self, job: Job) -> Environment:
        """The environment of a job's task, which is opened unless it is. Raises UsageError where it cannot be."""
        environment = self._environment if self.has_open == job.task_hash else None
        if environment is None:
            self._shut()
            self._open = ExitStack()
            environment = self._open.enter_context(
                open_environment(
                    job.task.kernel_task,
                    device=self._device,
                    worker=self.process,
                    sandbox_mode=self._sandbox,
                    cache_dir=self.cache,
                    cancel=self._cancel,
                    emit=lambda event: None,
                    compiler=self._compiler,
                    lock=self._lock,
                    quick_only=self._quick_only,
                    throughput=self._throughput,
                )
            )
            if canonical(environment.graph).text() != job.task.canonical.text():
                raise UsageError(f"another graph was traced: {canonical(environment.graph).text()}")
            self.has_open, self._environment = job.task_hash, environment
        baseline = environment.baseline(compiled=False)
        job.opened = Opened(environment.graph, environment.facts, baseline, environment.device)
        return environment

    def _shut(self) -> None:
        self.has_open, self._environment = "", None
        if self._open is not None:
            opened, self._open = self._open, None
            opened.close()
            if not self.process.alive:
                self._start_anew()

    def _start_anew(self) -> None:
        """A fresh process with nothing open; without one this worker is lost."""
        self.has_open, self._environment = "", None
        self.process.kill()
        if self._open is not None:
            opened, self._open = self._open, None
            opened.close()
        try:
            self.process.restart(self._cancel)
        except KernelAssistantError as error:
            self.lost = error.cause
