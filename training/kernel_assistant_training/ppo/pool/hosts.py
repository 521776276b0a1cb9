"""Evaluation hosts as the trainer sees them, and the records that it exchanges with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from kernel_assistant.records.codec import Record
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.worker import Answer, EvaluationJob


class HostReady(Record, frozen=True, kw_only=True):
    """The host is ready. `device` is its first one, with bandwidths; `toolkit` is the compiler's version line; `gpus`
    are the driver's identifiers of the GPUs in use."""

    workers: int
    device: DeviceFacts
    toolkit: str
    torch: str
    gpus: tuple[str, ...] = ()


def with_bandwidths(options: WorkerOptions, host: HostReady) -> WorkerOptions:
    """The options with the bandwidths that a host has measured."""
    return replace(options, bandwidths=(host.device.copy_bandwidth, host.device.read_bandwidth))


class HostAnswer(Record, frozen=True, kw_only=True):
    """A host is `ready`, or cannot set itself up because of an `error`, which is in the form of `session.wire`."""

    ready: HostReady | None = None
    error: dict[str, str] = {}


class EvaluationHost(Protocol):
    """A host with workers. Its methods may be called from several threads. `hint` is where to look after a loss."""

    name: str
    hint: str
    greeting: HostReady

    def begin(self, job: EvaluationJob) -> None:
        """Begin to build the candidates of a job, which one of its workers gets now or later."""

    def judge(self, number: int, job: EvaluationJob) -> Iterator[Answer]:
        """The answers of worker `number` to a job. Raises HostError if the host is lost."""

    def restart(self) -> None:
        """Waits until the host has new workers and greeting. Raises the project's errors if it does not come back."""

    def close(self) -> None:
        """Ends its workers."""


#: Waits until a host is ready. Raises the project's errors.
Connect = Callable[[WorkerOptions], EvaluationHost]
