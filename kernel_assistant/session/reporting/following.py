"""Passes the events of a job to a front end in batches until the job ends, even if the session host dies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol

from kernel_assistant.errors import EXIT_INTERNAL, HostError, KernelAssistantError
from kernel_assistant.events import AnyEvent, JobFailed
from kernel_assistant.session.client import EventStream
from kernel_assistant.store import JobState

#: A host that dies is restarted and continues its jobs; after this many times the job is given up.
_ATTEMPTS = 3


class EventSource(Protocol):
    """A session host, on this or a remote machine."""

    def attach(self, job: str, from_seq: int = 0) -> EventStream: ...

    def cancel(self, job: str, *, timeout: float | None = None) -> JobState: ...

    def say(self, job: str, text: str) -> None: ...


Batch = tuple[AnyEvent, ...]


def follow(
    source: EventSource,
    job: str,
    on_events: Callable[[Batch], None],
    on_lost: Callable[[HostError], None],
    *,
    batch_s: float = 0.0,
) -> None:
    """Calls `on_events` with the events of `job`, recorded and new ones, until the job has ended. Blocks, so it needs a
    thread of its own.

    Events that come within `batch_s` seconds after the first event of a batch are passed in one call. `on_lost` is
    called each time that the host dies, before a new host is started. If no host can be started, the last event is a
    JobFailed that this function makes.
    """
    seen = attempts = 0
    while True:
        try:
            stream = source.attach(job, seen + 1)
            for events in _batches(stream, batch_s):
                seen, attempts = events[-1].seq, 0
                on_events(events)
            return
        except HostError as error:
            attempts += 1
            if attempts >= _ATTEMPTS:
                on_events((_failure(error),))
                return
            on_lost(error)
            time.sleep(0.2 * attempts)
        except KernelAssistantError as error:
            on_events((_failure(error),))
            return


def _batches(stream: EventStream, batch_s: float) -> Iterator[Batch]:
    """Yields the stream's events in batches. If the host dies, yields those received before, then raises HostError."""
    while (event := stream.next()) is not None:
        events, until = [event], time.monotonic() + batch_s
        try:
            while not stream.ended and (left := until - time.monotonic()) > 0:
                more = stream.next(left)
                if more is None:
                    break
                events.append(more)
        except TimeoutError:
            pass
        except HostError:
            yield tuple(events)
            raise
        yield tuple(events)


def _failure(error: KernelAssistantError) -> JobFailed:
    return JobFailed(cause=error.cause, next_step=error.next_step, exit_code=EXIT_INTERNAL, detail=error.detail)
