"""Follows a job to its end, and handles Ctrl-C during that time."""

from __future__ import annotations

import time

from kernel_assistant.cli.progress import ProgressDisplay
from kernel_assistant.errors import Cancelled, HostError
from kernel_assistant.records import OptimizeResult
from kernel_assistant.session.client import Client, EventStream
from kernel_assistant.session.reporting.watching import result_of

#: After Ctrl-C the host has this long to say how the job ended.
_STOP_WITHIN_S = 0.9


def watch(
    client: Client, stream: EventStream, progress: ProgressDisplay, *, cancel_on_interrupt: bool
) -> OptimizeResult:
    """Shows the progress of a job until it ends and returns its result. Raises the error of a job that failed.

    Ctrl-C cancels the job if `cancel_on_interrupt`; Cancelled is raised if the host does not report its end in time.
    Otherwise Ctrl-C raises KeyboardInterrupt, and the job goes on.
    """
    try:
        with progress:
            return _end_of(stream, progress)
    except KeyboardInterrupt:
        if not cancel_on_interrupt:
            raise
    return _stop(client, stream, progress)


def _end_of(stream: EventStream, progress: ProgressDisplay) -> OptimizeResult:
    for event in stream:
        progress.show(event)
        result = result_of(event)
        if result is not None:
            return result
    raise HostError("the session host said nothing of the job's end", f"kernel-assistant show {stream.job}")


def _stop(client: Client, stream: EventStream, progress: ProgressDisplay) -> OptimizeResult:
    deadline = time.monotonic() + _STOP_WITHIN_S
    try:
        client.cancel(stream.job, timeout=_STOP_WITHIN_S)
        while (event := stream.next(max(0.01, deadline - time.monotonic()))) is not None:
            progress.note(event)
            result = result_of(event)
            if result is not None:
                return result
    except (TimeoutError, HostError):
        # The user wants to leave; the job's log has the rest.
        pass
    best = f"; best so far: {progress.best}" if progress.best else ""
    raise Cancelled(f"cancelled, the host is still cleaning up{best}", f"kernel-assistant show {stream.job}")
