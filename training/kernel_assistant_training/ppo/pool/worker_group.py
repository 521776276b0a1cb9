"""The workers of one evaluation host: numbered jobs in, events out. In a cluster they belong to an actor."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kernel_assistant.environment.builds.compile import compiler_version
from kernel_assistant.errors import UsageError
from kernel_assistant.targets import cpu, cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.threads import BESIDE_TRAINER
from kernel_assistant_training.evaluation.worker import EvaluationJob, EvaluationWorker
from kernel_assistant_training.evaluation.workers import EvaluationWorkers
from kernel_assistant_training.ppo.pool.events import (
    CandidateJudged,
    Event,
    HostOptions,
    HostReady,
    JobBegan,
    JobEnded,
    TaskOpened,
    WorkerLost,
)
from kernel_assistant_training.ppo.pool.host import Hear


class WorkerGroup:
    """See `EvaluationHost`: this machine. `logs` and `cache` are as for `WorkerOptions`."""

    name = "this machine"

    def __init__(self, options: HostOptions, hear: Hear, logs: Path, cache: Path) -> None:
        self._hear = hear
        self._workers = EvaluationWorkers(
            WorkerOptions(
                target=options.target,
                python=options.python or sys.executable,
                logs=logs,
                cache=cache,
                count=options.workers,
                builders=options.builders,
                sandbox=options.sandbox,
                most=options.most,
                throughput=options.throughput,
                memory=BESIDE_TRAINER,
            )
        )
        try:
            _hold_alike(self._workers.devices)
            self.greeting = self._greeted(options.target, self._workers.start(self._given(options)))
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> list[EvaluationWorker]:
        return self._workers.workers

    def give(self, number: int, job: EvaluationJob) -> None:
        self._workers.give(job, _JobReports(number, job, self._workers, self._tell))

    def close(self) -> None:
        self._workers.close()

    def _given(self, options: HostOptions) -> DeviceFacts | None:
        """The device with the bandwidths of the options, None without any."""
        bandwidths = {"copy_bandwidth": options.copy_bandwidth, "read_bandwidth": options.read_bandwidth}
        return msgspec.structs.replace(self._workers.device, **bandwidths) if options.copy_bandwidth else None

    def _greeted(self, target: str, device: DeviceFacts) -> HostReady:
        compiler = compiler_version(cuda.compiler() if target == "cuda" else cpu.compiler()).splitlines()
        return HostReady(
            workers=len(self.workers),
            device=device,
            toolkit=compiler[-1 if target == "cuda" else 0],
            torch=str(self.workers[0].process.hello["torch"]),
            gpus=tuple(cuda.identities()[: len(self.workers)]) if target == "cuda" else (),
        )

    def _tell(self, event: Event) -> None:
        """Report an event, unless the group is closing: the loss of a killed process says nothing about its
        candidate."""
        if not self._workers.cancel.is_set():
            self._hear(self, event)


@dataclass
class _JobReports:
    """See `JobObserver`. Reports what is new of a job as events."""

    number: int
    job: EvaluationJob
    workers: EvaluationWorkers
    tell: Callable[[Event], None]
    opened: bool = field(default=False, init=False)
    reported: int = field(default=0, init=False)

    def began(self) -> None:
        self.tell(JobBegan(job=self.number))

    def progressed(self) -> None:
        if self.job.opened is not None and not self.opened:
            self.opened = True
            self.tell(TaskOpened(job=self.number, opened=self.job.opened))
        for evaluation in self.job.found[self.reported :]:
            self.tell(CandidateJudged(job=self.number, evaluation=evaluation))
        self.reported = len(self.job.found)

    def ended(self, worker: EvaluationWorker) -> None:
        self.tell(JobEnded(job=self.number, why=self.job.why, open=self.workers.open_tasks))
        if worker.lost:
            left = sum(not one.lost for one in self.workers.workers)
            self.tell(WorkerLost(why=worker.lost, left=left))


def _hold_alike(devices: list[DeviceFacts]) -> None:
    """Raises UsageError for several kinds of GPU."""
    names = sorted({device.name for device in devices})
    if len(names) > 1:
        raise UsageError(
            f"this machine has several kinds of GPU ({', '.join(names)}), whose times do not compare",
            "show one kind to the pool: CUDA_VISIBLE_DEVICES",
        )
