"""The messages between a pool and its hosts, as records."""

from __future__ import annotations

import msgspec

from kernel_assistant.records import Candidate, Evaluation, Tier
from kernel_assistant.records.codec import Record
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.evaluation.tasks import Task
from kernel_assistant_training.evaluation.worker import EvaluationJob, OpenedTask


class HostOptions(Record, frozen=True, kw_only=True):
    """How a host sets itself up. `workers` 0 means one per GPU, `builders` 0 one per core, `python` "" the host's own
    interpreter. Bandwidths are in bytes/s; 0 has the host measure them."""

    target: str
    python: str = ""
    workers: int = 0
    builders: int = 0
    sandbox: str = "auto"
    most: Tier = Tier.quick
    throughput: bool = True
    copy_bandwidth: float = 0.0
    read_bandwidth: float = 0.0

    def with_bandwidths(self, device: DeviceFacts) -> HostOptions:
        """The options with those of a device that has them."""
        return msgspec.structs.replace(self, copy_bandwidth=device.copy_bandwidth, read_bandwidth=device.read_bandwidth)


class HostReady(Record, frozen=True, kw_only=True):
    """The host is ready. `device` is its first one, with bandwidths; `toolkit` is the compiler's version line; `gpus`
    are the driver's identifiers of the GPUs in use."""

    workers: int
    device: DeviceFacts
    toolkit: str
    torch: str
    gpus: tuple[str, ...] = ()


class HostAnswer(Record, frozen=True, kw_only=True):
    """A host is `ready`, or cannot set itself up because of an `error`, which is in the form of `session.wire`."""

    ready: HostReady | None = None
    error: dict[str, str] = {}


class JobBegan(Record, frozen=True, kw_only=True, tag=True):
    """A worker began a job."""

    job: int


class TaskOpened(Record, frozen=True, kw_only=True, tag=True):
    """A job's task was opened and can be evaluated."""

    job: int
    opened: OpenedTask


class CandidateJudged(Record, frozen=True, kw_only=True, tag=True):
    """The evaluation of a job's next candidate; None if the judge was lost at it."""

    job: int
    evaluation: Evaluation | None


class JobEnded(Record, frozen=True, kw_only=True, tag=True):
    """A job is done. `why` is the problem, if any; `open` are the tasks that the host has open now."""

    job: int
    why: str
    open: tuple[str, ...]


class WorkerLost(Record, frozen=True, kw_only=True, tag=True):
    """A worker was lost; `left` is the number that remain."""

    why: str
    left: int


class HostLost(Record, frozen=True, kw_only=True, tag=True):
    """The host is lost, or has failed."""

    why: str


Event = JobBegan | TaskOpened | CandidateJudged | JobEnded | WorkerLost | HostLost


class JobMessage(Record, frozen=True, kw_only=True):
    """A job in the form in which it is sent."""

    number: int
    task: Task
    candidates: tuple[tuple[Candidate, Tier], ...]

    def job(self) -> EvaluationJob:
        return EvaluationJob(self.task, self.candidates)
