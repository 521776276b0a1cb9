"""Every job that this server follows, and whom it tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from kernel_assistant.events import AnyEvent
from kernel_assistant.session.following import Source
from kernel_assistant_lsp.documents import uri_of
from kernel_assistant_lsp.jobs.view import JobView, advanced
from kernel_assistant_lsp.jobs.watcher import follow_in_thread

Listener = Callable[[JobView, JobView], None]


class Jobs:
    """Views of jobs by their key: the host's number, or `machine:number` for another machine's. In the loop only."""

    def __init__(self) -> None:
        self._views: dict[str, JobView] = {}
        self._paths: dict[str, Path] = {}
        self._sources: dict[str, tuple[Source, str]] = {}
        self.listeners: list[Listener] = []

    def watch(self, view: JobView, path: Path, source: Source, number: str, on_end: Callable[[], None]) -> None:
        """Follow job `number` of `source` as `view.job`; nothing where it is followed already."""
        if view.job in self._views and self._views[view.job].active:
            return
        self._views[view.job] = view
        self._paths[view.job] = path
        self._sources[view.job] = (source, number)
        loop = asyncio.get_running_loop()
        follow_in_thread(source, number, loop, lambda event: self._advance(view.job, event), on_end)

    def view(self, job: str) -> JobView | None:
        return self._views.get(job)

    def source(self, job: str) -> tuple[Source, str] | None:
        """Whom to ask about `job`, and its number there."""
        return self._sources.get(job)

    def active(self) -> list[JobView]:
        return [view for view in self._views.values() if view.active]

    def running(self, path: Path) -> dict[str, JobView]:
        """Class → its active job, of one file."""
        found = [view for view in self._views.values() if view.active and self._paths[view.job] == path]
        return {view.class_name: view for view in found}

    def path(self, job: str) -> Path:
        return self._paths[job]

    def _advance(self, job: str, event: AnyEvent) -> None:
        before = self._views[job]
        view = advanced(before, event)
        self._views[job] = view
        for listener in self.listeners:
            listener(before, view)


def first_view(job: str, path: Path, class_name: str, *, kind: str, budget: float) -> JobView:
    """Of a job that has said nothing yet."""
    return JobView(job=job, uri=uri_of(path), class_name=class_name, kind=kind, budget=budget)
