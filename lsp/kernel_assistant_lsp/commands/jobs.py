"""Commands for jobs: list, confirm, cancel or discard them, send messages to their models, read their transcripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pygls.exceptions import JsonRpcException

from kernel_assistant.apply.applied import source_text
from kernel_assistant.errors import HostError, UsageError
from kernel_assistant.events import AnyEvent
from kernel_assistant.records import Offer
from kernel_assistant.session.client import Client
from kernel_assistant.session.edits import is_appliable, place_of
from kernel_assistant.session.hosting.event_log import FINAL, log_path, recorded_events
from kernel_assistant.session.reporting.class_state import figure
from kernel_assistant.session.reporting.following import EventSource
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobKind, JobRow
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.features.transcript import text_of as transcript_of
from kernel_assistant_lsp.flows.arguments import class_of, job_of, text_of, unconfirmed_job_of
from kernel_assistant_lsp.following.start import start
from kernel_assistant_lsp.shown import show_text
from kernel_assistant_lsp.text.documents import uri_of

_MOST = 100


async def list_jobs(context: Context, argument: dict[str, Any]) -> list[dict[str, Any]]:
    """Lists the jobs of this workspace: running jobs first, then ended ones, newest first.

    Returns one object for each job. `active` is the job's progress (`EditorJob.document`) if this server follows it,
    else null. `offer` and `figure` describe the gain of its result; `appliable` says whether its kernels can be applied
    to the file as it is now. With `all`, jobs of other folders are listed too.
    """
    folders = [] if argument.get("all") is True else context.folders()
    opened = {snapshot.path: snapshot.text for snapshot in context.documents.all()}

    def read() -> list[dict[str, Any]]:
        rows = context.history.store.jobs(limit=_MOST)
        mine = [row for row in rows if not folders or any(_path(row).is_relative_to(one) for one in folders)]
        texts = {
            path: opened.get(path) or _on_disk(path) for path in {_path(row) for row in mine if row.result is not None}
        }
        return [_summary(row, texts.get(_path(row))) for row in mine]

    stored = await in_thread(read)
    active = {view.job: view.document() for view in context.jobs.active()}
    rows = [{**row, "active": active.pop(row["job"], None)} for row in stored]
    return [
        {**view, "active": view, "result": None, "figure": "", "appliable": False} for view in active.values()
    ] + rows


def _path(row: JobRow) -> Path:
    return place_of(row.task, row.options).path


def _on_disk(path: Path) -> str | None:
    """Return the text of a file, None if it cannot be read."""
    try:
        return source_text(path)
    except UsageError:
        return None


def _summary(row: JobRow, text: str | None) -> dict[str, Any]:
    selection = place_of(row.task, row.options)
    appliable = text is not None and row.options.kind is JobKind.optimize and is_appliable(row, text)
    offer = Offer.none if row.result is None else row.result.offered
    return {
        **row.summary(),
        "uri": uri_of(selection.path),
        "class": selection.class_name,
        "offer": offer.value,
        "figure": figure(row.result) if offer.applicable else "",
        "appliable": appliable,
    }


async def cancel_job(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Stop a job; its candidates are kept.

    Return `{"job", "state"}`; the state is "running" until the job has stopped.
    """
    return await cancel(context, text_of(argument, "job"))


async def cancel(context: Context, job: str) -> dict[str, Any]:
    source, number = _source(context, job)
    state = await in_thread(lambda: source.cancel(number))
    return {"job": job, "state": state.value}


def _source(context: Context, job: str) -> tuple[EventSource, str]:
    """Returns (host, number): the session host, local or remote, that runs the job `job`, and the number of the job
    there."""
    return context.jobs.source(job) or (Client(context.settings(None)), job)


async def confirm(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Measures the candidate of a job in full, if the job was stopped early or its gain was unclear.

    Returns `{"job"}`. The new job is shown and applied like a job that searched for candidates.
    """
    from kernel_assistant.session.kinds.again import prepare_confirm

    snapshot, _ = class_of(context, argument)
    settings = context.settings(snapshot.path)
    task, options = await in_thread(
        lambda: prepare_confirm(context.history.store, unconfirmed_job_of(context, argument))
    )
    return await start(context, task, options, settings)


async def discard(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Discard the result of a job, so that the lens offers to optimize again. The job itself stays in the history.

    Return `{"discarded": job}`.
    """
    snapshot, _ = class_of(context, argument)

    def discarded() -> str:
        row = job_of(context, argument)
        context.history.store.discard(row.id)
        return row.id

    job = await in_thread(discarded)
    context.history.forget_rows()
    await context.look(snapshot.uri)
    return {"discarded": job}


async def say(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Send a message to the model that works on a job; the model reads it in its next turn.

    Return `{"job"}`. Raises UsageError if the job does not run.
    """
    job, words = text_of(argument, "job"), text_of(argument, "words").strip()
    if not words:
        raise UsageError("there is nothing to say", "name words for the model")
    source, number = _source(context, job)
    await in_thread(lambda: source.say(number, words))
    return {"job": job}


#: Seconds without an event after which all known events of a remote machine have arrived.
_QUIET_S = 0.5


async def show_transcript(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Show the events of a job so far: its phases, its candidates, and its conversations with a model.

    Return `{"job", "text", "seen", "ended"}`. `text` is Markdown with the events after number `from` (0: all events);
    `seen` is the number of the last event."""
    job, behind = text_of(argument, "job"), argument.get("from", 0)
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
    text = transcript_of(new)
    show_text(context, f"job-{number.replace(':', '-')}-transcript.md", text)
    return {
        "job": number,
        "text": text,
        "seen": events[-1].seq if events else behind,
        "ended": bool(events) and isinstance(events[-1], FINAL),
    }


def _remote_events(source: EventSource, number: str) -> tuple[AnyEvent, ...]:
    """Return the events of a job that the session host on another machine has recorded so far."""
    stream, events = source.attach(number), list[AnyEvent]()
    try:
        while (event := stream.next(_QUIET_S)) is not None:
            events.append(event)
    except (TimeoutError, HostError):
        pass  # the next request gets the rest
    finally:
        stream.close()
    return tuple(events)
