"""What a pool and its machines tell each other, as records."""

from __future__ import annotations

from typing import Any

import msgspec

from kernel_assistant.records import Baseline, Candidate, Evaluation, OpGraph, Tier
from kernel_assistant.records.codec import Record, from_builtins, to_builtins
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.ppo.pool_worker import Job, Opened
from kernel_assistant_training.ppo.tasks import Task


class StationOptions(Record, frozen=True, kw_only=True):
    """What a machine is to set up. No `workers` means one a GPU, no `builders` one a core, no `python` the one that the
    station runs in. Bandwidths in bytes/s; 0 has them measured there."""

    target: str
    python: str = ""
    workers: int = 0
    builders: int = 0
    sandbox: str = "auto"
    quick_only: bool = True
    copy_bandwidth: float = 0.0
    read_bandwidth: float = 0.0
    beat_seconds: float = 5.0


class Greeting(Record, frozen=True, kw_only=True, tag=True):
    """A machine that is ready. `device` is its first, with bandwidths; `toolkit` the compiler's own line; `gpus` are
    the driver's names of those that it uses."""

    workers: int
    device: DeviceFacts
    toolkit: str
    torch: str
    gpus: tuple[str, ...] = ()


class Refusal(Record, frozen=True, kw_only=True, tag=True):
    """A machine that cannot set up what it was asked for; as `session.wire` writes errors."""

    error: dict[str, str]


class Beat(Record, frozen=True, kw_only=True, tag=True):
    """Nothing new, but there."""


class Began(Record, frozen=True, kw_only=True, tag=True):
    """A worker is at a job now."""

    job: int


class TaskOpened(Record, frozen=True, kw_only=True, tag=True):
    """A job's task can be judged."""

    job: int
    graph: OpGraph
    facts: dict[str, Any]
    baseline: Baseline
    device: DeviceFacts

    @classmethod
    def of(cls, job: int, opened: Opened) -> TaskOpened:
        return cls(job=job, graph=opened.graph, facts=opened.facts, baseline=opened.baseline, device=opened.device)

    def opened(self) -> Opened:
        return Opened(self.graph, self.facts, self.baseline, self.device)


class Judged(Record, frozen=True, kw_only=True, tag=True):
    """The next candidate of a job; None where the judge was lost at it."""

    job: int
    evaluation: Evaluation | None


class Ended(Record, frozen=True, kw_only=True, tag=True):
    """A job is done. `why` says what stood in its way, `open` which tasks the machine has open now."""

    job: int
    why: str
    open: tuple[str, ...]


class WorkerLost(Record, frozen=True, kw_only=True, tag=True):
    """One worker less; `left` are there."""

    why: str
    left: int


class Lost(Record, frozen=True, kw_only=True, tag=True):
    """The machine is gone. Said by this side of the wire alone."""

    why: str


Event = Greeting | Refusal | Beat | Began | TaskOpened | Judged | Ended | WorkerLost | Lost


class Given(Record, frozen=True, kw_only=True):
    """A job as it travels."""

    number: int
    task: Task
    candidates: tuple[tuple[Candidate, Tier], ...]

    def job(self) -> Job:
        return Job(self.task, self.candidates)


def event_to_wire(event: Event) -> dict[str, Any]:
    found: dict[str, Any] = to_builtins(event)
    return found


def event_from_wire(data: dict[str, Any]) -> Event:
    """Raises UsageError for what is none."""
    found: Event = from_builtins(data, Event)  # type: ignore[arg-type]  # a union is a type to msgspec
    return found


def with_bandwidth(device: DeviceFacts, options: StationOptions) -> DeviceFacts:
    """The device as the options say that it is."""
    return msgspec.structs.replace(device, copy_bandwidth=options.copy_bandwidth, read_bandwidth=options.read_bandwidth)
