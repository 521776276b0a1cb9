"""Evaluation hosts as the trainer sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from kernel_assistant_training.evaluation.worker import EvaluationJob
from kernel_assistant_training.ppo.pool.events import Event, HostOptions, HostReady


class EvaluationHost(Protocol):
    """A host that evaluates jobs. Its events go to the `Hear` callback that it was made with, from any thread."""

    name: str
    greeting: HostReady

    def give(self, number: int, job: EvaluationJob) -> None:
        """Pass a job to the host under this number. Returns at once."""

    def close(self) -> None:
        """Ends its workers. It sends no events afterwards."""


@runtime_checkable
class RestartableHost(EvaluationHost, Protocol):
    """A host that comes back after its loss."""

    def restart(self) -> None:
        """Waits until the host has new workers and greeting. Raises the project's errors if it does not come back."""


Hear = Callable[[EvaluationHost, Event], None]
#: Waits until a host is ready. Raises the project's errors.
Connect = Callable[[HostOptions, Hear], EvaluationHost]
