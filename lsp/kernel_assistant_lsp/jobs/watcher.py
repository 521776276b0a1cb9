"""Follows jobs in threads and tells the event loop each event."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Protocol

from kernel_assistant.errors import EXIT_INTERNAL, HostError, KernelAssistantError
from kernel_assistant.events import AnyEvent, JobFailed
from kernel_assistant.session.client import EventStream
from kernel_assistant.store import JobState
from kernel_assistant_lsp.threads import tell

#: A host that dies is started anew and goes on with its jobs; one that dies so often is broken.
_ATTEMPTS = 3


class Source(Protocol):
    """A session host, here or on another machine."""

    def attach(self, job: str, from_seq: int = 0) -> EventStream: ...

    def cancel(self, job: str, *, timeout: float | None = None) -> JobState: ...


def follow(
    source: Source,
    job: str,
    loop: asyncio.AbstractEventLoop,
    on_event: Callable[[AnyEvent], None],
    on_end: Callable[[], None],
) -> None:
    """Call `on_event` in the loop for every event of `job`, old and new, then `on_end`. Returns at once."""

    def run() -> None:
        failed = _follow(source, job, lambda event: tell(loop, on_event, event))
        if failed is not None:
            tell(loop, on_event, failed)
        tell(loop, on_end)

    threading.Thread(target=run, name=f"job-{job}", daemon=True).start()


def _follow(source: Source, job: str, on_event: Callable[[AnyEvent], None]) -> JobFailed | None:
    """None once the job has ended and said so itself."""
    seen = attempts = 0
    while True:
        try:
            stream = source.attach(job, seen + 1)
            for event in stream:
                seen, attempts = stream.seq, 0
                on_event(event)
            return None
        except HostError as error:
            attempts += 1
            if attempts >= _ATTEMPTS:
                return _failure(error)
            time.sleep(0.2 * attempts)
        except KernelAssistantError as error:
            return _failure(error)


def _failure(error: KernelAssistantError) -> JobFailed:
    return JobFailed(cause=error.cause, next_step=error.next_step, exit_code=EXIT_INTERNAL, detail=error.detail)
