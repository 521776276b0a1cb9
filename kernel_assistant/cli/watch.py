"""Follow a job to its end, and what Ctrl-C means while doing so."""

from __future__ import annotations

import time

from kernel_assistant.cli.progress import Progress
from kernel_assistant.errors import Cancelled, HostError
from kernel_assistant.events import AnyEvent, JobFailed, JobFinished
from kernel_assistant.records import OptimizeResult
from kernel_assistant.session.client import Client, EventStream
from kernel_assistant.session.watching import failure_of

#: After Ctrl-C the host has this long to say how the job ended.
_STOP_WITHIN_S = 0.9


def watch(client: Client, stream: EventStream, progress: Progress, *, cancel_on_interrupt: bool) -> OptimizeResult:
    """The job's result. Raises what the job failed with, Cancelled when the host did not say how it ended in time.

    Without `cancel_on_interrupt`, Ctrl-C only ends the watching (KeyboardInterrupt goes on).
    """
    try:
        with progress:
            return _end_of(stream, progress)
    except KeyboardInterrupt:
        if not cancel_on_interrupt:
            raise
    return _stop(client, stream, progress)


def _end_of(stream: EventStream, progress: Progress) -> OptimizeResult:
    for event in stream:
        progress.show(event)
        result = _result(event)
        if result is not None:
            return result
    raise HostError("the session host said nothing of the job's end", f"kernel-assistant show {stream.job}")


def _stop(client: Client, stream: EventStream, progress: Progress) -> OptimizeResult:
    deadline = time.monotonic() + _STOP_WITHIN_S
    try:
        client.cancel(stream.job, timeout=_STOP_WITHIN_S)
        while (event := stream.next(max(0.01, deadline - time.monotonic()))) is not None:
            progress.note(event)
            result = _result(event)
            if result is not None:
                return result
    except (TimeoutError, HostError):
        # The user wants to be gone; the job's log has the rest.
        pass
    best = f"; best so far: {progress.best}" if progress.best else ""
    raise Cancelled(f"cancelled, the host is still cleaning up{best}", f"kernel-assistant show {stream.job}")


def _result(event: AnyEvent) -> OptimizeResult | None:
    if isinstance(event, JobFailed):
        raise failure_of(event)
    return event.result if isinstance(event, JobFinished) else None
