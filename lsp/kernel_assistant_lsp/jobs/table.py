"""The jobs that this server follows, and the listeners that are called at each change."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from kernel_assistant.events import AnyEvent
from kernel_assistant.session.reporting.following import Batch, EventSource, follow
from kernel_assistant.session.reporting.job_view import fold
from kernel_assistant.session.threads import tell
from kernel_assistant_lsp.jobs.view import EditorJob
from kernel_assistant_lsp.text.documents import uri_of

Listener = Callable[[EditorJob, EditorJob], None]


class Jobs:
    """The state of each job that this server follows, by key: the job number, or `machine:number` on a remote machine.
    Use it in the event loop only."""

    def __init__(self) -> None:
        self._views: dict[str, EditorJob] = {}
        self._paths: dict[str, Path] = {}
        self._sources: dict[str, tuple[EventSource, str]] = {}
        self.listeners: list[Listener] = []

    def watch(self, view: EditorJob, path: Path, source: EventSource, number: str, on_end: Callable[[], None]) -> None:
        """Follows job `number` of the session host `source` under the key `view.job`, unless it is followed already.
        `view` is its state before the first event, `path` its file. Calls `on_end` in the event loop when the job has
        ended."""
        if view.job in self._views and self._views[view.job].active:
            return
        self._views[view.job] = view
        self._paths[view.job] = path
        self._sources[view.job] = (source, number)
        loop = asyncio.get_running_loop()
        follow_in_thread(source, number, loop, lambda event: self._advance(view.job, event), on_end)

    def view(self, job: str) -> EditorJob | None:
        return self._views.get(job)

    def source(self, job: str) -> tuple[EventSource, str] | None:
        """Returns (host, number): the session host that runs `job`, and the number of the job there; None if this
        server does not follow the job."""
        return self._sources.get(job)

    def active(self) -> list[EditorJob]:
        return [view for view in self._views.values() if view.active]

    def running(self, path: Path) -> dict[str, EditorJob]:
        """Return a map from class name to active job for one file."""
        views = [view for view in self._views.values() if view.active and self._paths[view.job] == path]
        return {view.class_name: view for view in views}

    def path(self, job: str) -> Path:
        return self._paths[job]

    def _advance(self, job: str, event: AnyEvent) -> None:
        before = self._views[job]
        view = fold(before, event)
        self._views[job] = view
        for listener in self.listeners:
            listener(before, view)


def first_view(job: str, path: Path, class_name: str, *, kind: str, budget: float) -> EditorJob:
    """Return the view of a job before its first event."""
    return EditorJob(job=job, uri=uri_of(path), class_name=class_name, kind=kind, budget=budget)


def follow_in_thread(
    source: EventSource,
    job: str,
    loop: asyncio.AbstractEventLoop,
    on_event: Callable[[AnyEvent], None],
    on_end: Callable[[], None],
) -> None:
    """Call `on_event` in the loop for every event of `job`, old and new, then `on_end`. Returns at once; a thread
    does the work."""

    def on_events(events: Batch) -> None:
        for event in events:
            tell(loop, on_event, event)

    def run() -> None:
        follow(source, job, on_events, lambda error: None)
        tell(loop, on_end)

    threading.Thread(target=run, name=f"job-{job}", daemon=True).start()
