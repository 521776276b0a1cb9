"""Makes this machine an evaluation host. In a cluster each Ray actor has a `LocalHost`."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from kernel_assistant.environment.builds.compile import compiler_version
from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.targets import cpu, cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.worker import Answer, EvaluationJob, JobFailed
from kernel_assistant_training.evaluation.workers import EvaluationWorkers
from kernel_assistant_training.ppo.pool.hosts import HostReady


class LocalHost(EvaluationWorkers):
    """An `EvaluationHost` with workers on this machine. Raises UsageError if the machine has several kinds of GPU, and
    MissingError if no worker can be started."""

    name, hint = "this machine", "see worker-00.log in the run's folder"

    def __init__(self, options: WorkerOptions) -> None:
        super().__init__(options)
        try:
            _hold_alike(self.devices)
            self.start()
            self.greeting = self._greeted(options.target)
        except BaseException:
            self.close()
            raise

    def begin(self, job: EvaluationJob) -> None:
        self.build(job.task, (candidate for candidate, _ in job.candidates))

    def judge(self, number: int, job: EvaluationJob) -> Iterator[Answer]:
        """Yields the answers of worker `number` to a job. After an unexpected error the worker counts as lost, because
        its state is unknown."""
        worker = self.workers[number]
        try:
            yield from worker.judge(job)
        except Exception as error:  # noqa: BLE001 - whoever waits for the job must hear of it
            traceback.print_exc()
            worker.lost = f"internal {type(error).__name__}: {error}"
            yield JobFailed(why=worker.lost, lost=True)
        finally:
            self.forget(candidate for candidate, _ in job.candidates)

    def restart(self) -> None:
        """Raises MissingError always: on the same machine, a worker that could not be started will not start later
        either."""
        raise MissingError(f"{self.name} has no worker left", self.hint)

    def _greeted(self, target: str) -> HostReady:
        compiler = compiler_version(cuda.compiler() if target == "cuda" else cpu.compiler()).splitlines()
        return HostReady(
            workers=len(self.workers),
            device=self.device,
            toolkit=compiler[-1 if target == "cuda" else 0],
            torch=str(self.workers[0].process.hello["torch"]),
            gpus=tuple(cuda.identities()[: len(self.workers)]) if target == "cuda" else (),
        )


def _hold_alike(devices: list[DeviceFacts]) -> None:
    """Raises UsageError if the machine has several kinds of GPU."""
    names = sorted({device.name for device in devices})
    if len(names) > 1:
        raise UsageError(
            f"this machine has several kinds of GPU ({', '.join(names)}), whose times do not compare",
            "show one kind to the pool: CUDA_VISIBLE_DEVICES",
        )
