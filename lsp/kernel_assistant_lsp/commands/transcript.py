"""Return the events of a job so far: its phases, its candidates, and its conversations with a model."""

from __future__ import annotations

from typing import Any

from pygls.exceptions import JsonRpcException

from kernel_assistant.errors import HostError
from kernel_assistant.events import AnyEvent
from kernel_assistant.session.hosting.event_log import FINAL, log_path, recorded_events
from kernel_assistant.session.reporting.following import EventSource
from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.features.transcript import text_of
from kernel_assistant_lsp.flows.arguments import text_of as text_argument
from kernel_assistant_lsp.shown import show_text

#: Seconds without an event after which all known events of a remote machine have arrived.
_QUIET_S = 0.5


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return `{"job", "text", "seen", "ended"}`: Markdown of the events after number `from` (0: all); `seen` is the
    number of the last event."""
    job, behind = text_argument(argument, "job"), argument.get("from", 0)
    if not isinstance(behind, int):
        raise JsonRpcException("'from' must be the number of an event", code=-32602)
    known = context.jobs.source(job)
    jobs_dir = context.settings(None).jobs_dir

    def read() -> tuple[str, tuple[AnyEvent, ...]]:
        if known is not None and known[1] != job:
            return job, _remote_events(*known)
        # On this machine the event log is on disk, whether a session host runs or not.
        row = context.history.store.job(job)
        return row.id, recorded_events(log_path(jobs_dir, row.id))

    number, events = await in_thread(read)
    new = [event for event in events if event.seq > behind]
    text = text_of(new)
    show_text(context, f"job-{number.replace(':', '-')}-transcript.md", text)
    return {
        "job": number,
        "text": text,
        "seen": events[-1].seq if events else behind,
        "ended": bool(events) and isinstance(events[-1], FINAL),
    }


def _remote_events(source: EventSource, number: str) -> tuple[AnyEvent, ...]:
    """Return the events that the session host on another machine has so far."""
    stream, events = source.attach(number), list[AnyEvent]()
    try:
        while (event := stream.next(_QUIET_S)) is not None:
            events.append(event)
    except (TimeoutError, HostError):
        pass  # the next request gets the rest
    finally:
        stream.close()
    return tuple(events)
