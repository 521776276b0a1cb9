"""The Ray actor on an evaluation host of a cluster. There is one actor for each GPU or, for the target CPU, one for
each node."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from kernel_assistant.config import resolve
from kernel_assistant.errors import EXIT_INTERNAL, HostError, KernelAssistantError
from kernel_assistant.records.codec import decode, encode
from kernel_assistant.session.wire import error_to_wire
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.worker import EvaluationJob
from kernel_assistant_training.ppo.pool.hosts import HostAnswer
from kernel_assistant_training.ppo.pool.kind import own_version
from kernel_assistant_training.ppo.pool.local_host import LocalHost


class HostActor:
    """A `LocalHost` in a Ray actor. Methods take and return records as JSON in bytes, so that neither side needs to
    unpickle the other side's classes."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kernel-assistant-host-")
        self._started: LocalHost | None = None

    def version(self) -> bytes:
        return encode(own_version())

    def start(self, options: bytes) -> bytes:
        """Starts the workers; takes encoded `WorkerOptions`, returns an encoded `HostAnswer`. If the workers were
        started before, the trainer has lost its connection to this process: the process then ends, and Ray starts a new
        one."""
        if self._started is not None:
            os._exit(EXIT_INTERNAL)
        try:
            asked = msgspec.json.decode(options, type=WorkerOptions, dec_hook=lambda kind, value: kind(value))
            here = replace(asked, logs=Path(self._folder.name), cache=resolve()[0].cache_dir)
            self._started = LocalHost(replace(here, python=asked.python or sys.executable))
        except KernelAssistantError as error:
            return encode(HostAnswer(error=error_to_wire(error)))
        return encode(HostAnswer(ready=self._started.greeting))

    def begin(self, job: bytes) -> None:
        """Does what `EvaluationHost.begin` does; takes an encoded `EvaluationJob`."""
        self._host.begin(decode(job, EvaluationJob))

    def judge(self, number: int, job: bytes) -> Iterator[bytes]:
        """Does what `EvaluationHost.judge` does; takes an encoded `EvaluationJob`, yields encoded lists of one `Answer`
        each."""
        for answer in self._host.judge(number, decode(job, EvaluationJob)):
            yield encode([answer])

    def close(self) -> None:
        if self._started is not None:
            self._started.close()
        self._folder.cleanup()

    @property
    def _host(self) -> LocalHost:
        """The host with the workers. Raises HostError if Ray has restarted this process and `start` was not called
        again."""
        if self._started is None:
            raise HostError("it was started again")
        return self._started
