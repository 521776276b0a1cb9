"""The actor on an evaluation host in a Ray cluster: one for each GPU, or for each node without GPUs."""

from __future__ import annotations

import os
import queue
import tempfile
from pathlib import Path

from kernel_assistant.config import resolve
from kernel_assistant.errors import EXIT_INTERNAL, KernelAssistantError
from kernel_assistant.records.codec import decode, encode
from kernel_assistant.session.wire import error_to_wire
from kernel_assistant_training.ppo.pool.events import Event, HostAnswer, HostLost, HostOptions, JobMessage
from kernel_assistant_training.ppo.pool.kind import own_version
from kernel_assistant_training.ppo.pool.worker_group import WorkerGroup

#: Calls that the actor answers at the same time: `events` waits while others bring jobs.
CONCURRENCY = 4


class HostActor:
    """Takes and returns records as JSON in bytes, so that neither side needs to unpickle the other's classes."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._folder = tempfile.TemporaryDirectory(prefix="kernel-assistant-host-")
        self._group: WorkerGroup | None = None

    def version(self) -> bytes:
        return encode(own_version())

    def start(self, options: bytes) -> bytes:
        """Starts the workers: `HostOptions` to `HostAnswer`. If they were started before, the trainer has lost this
        process: it ends, and Ray starts another one."""
        if self._group is not None:
            os._exit(EXIT_INTERNAL)
        try:
            given, cache = decode(options, HostOptions), resolve()[0].cache_dir
            self._group = WorkerGroup(given, lambda _, event: self._events.put(event), Path(self._folder.name), cache)
        except KernelAssistantError as error:
            return encode(HostAnswer(error=error_to_wire(error)))
        return encode(HostAnswer(ready=self._group.greeting))

    def give(self, job: bytes) -> None:
        try:
            if self._group is not None:
                message = decode(job, JobMessage)
                self._group.give(message.number, message.job())
        except Exception as error:  # noqa: BLE001 - the trainer waits for this job and does not wait for this call
            self._events.put(HostLost(why=f"it failed: {type(error).__name__}: {error}"))

    def events(self) -> bytes:
        """A list of all new events; waits for the first."""
        events = [self._events.get()]
        while not self._events.empty():
            events.append(self._events.get())
        return encode(events)

    def close(self) -> None:
        if self._group is not None:
            self._group.close()
        self._folder.cleanup()
