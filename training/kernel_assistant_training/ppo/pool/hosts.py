"""The interface of evaluation hosts, and the records that the trainer exchanges with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from kernel_assistant.records.codec import Record
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.worker import Answer, EvaluationJob


class HostReady(Record, frozen=True, kw_only=True):
    """Sent by a host that is ready. `workers` is the number of its workers, `device` its first device, with bandwidths;
    `toolkit` is the compiler's version line; `gpus` are the driver's identifiers of the GPUs in use."""

    workers: int
    device: DeviceFacts
    toolkit: str
    torch: str
    gpus: tuple[str, ...] = ()


def with_bandwidths(options: WorkerOptions, host: HostReady) -> WorkerOptions:
    """Returns the options with `bandwidths` set to those that the host has measured."""
    return replace(options, bandwidths=(host.device.copy_bandwidth, host.device.read_bandwidth))


class HostAnswer(Record, frozen=True, kw_only=True):
    """A host's answer to its start: `ready`, or the `error` for which it could not start, as a dictionary in the form
    that `session.wire` uses."""

    ready: HostReady | None = None
    error: dict[str, str] = {}


class EvaluationHost(Protocol):
    """A host with evaluation workers. Its methods may be called from several threads. `hint` tells the user where to
    look for the cause if the host is lost."""

    name: str
    hint: str
    greeting: HostReady

    def begin(self, job: EvaluationJob) -> None:
        """Begins to build the candidates of a job that one of the host's workers gets now or later."""

    def judge(self, number: int, job: EvaluationJob) -> Iterator[Answer]:
        """Yields the answers of worker `number` to a job. Raises HostError if the host is lost."""

    def restart(self) -> None:
        """Waits until the host has new workers and a new `greeting`. Raises HostError, MissingError or another error of
        the project if the host does not come back."""

    def close(self) -> None:
        """Ends the host's workers."""


#: Waits until a host is ready. Raises the project's errors.
Connect = Callable[[WorkerOptions], EvaluationHost]
