"""Shows jobs as work-done progress of the protocol, with a cancel button and the best speed-up so far."""

from __future__ import annotations

import asyncio
from typing import Any

from lsprotocol.types import WorkDoneProgressBegin, WorkDoneProgressEnd, WorkDoneProgressReport
from pygls.exceptions import JsonRpcException
from pygls.progress import Progress

from kernel_assistant.session.reporting.words import of_spending, time_left
from kernel_assistant_lsp.jobs.view import EditorJob, told

_DOING = {"optimize": "Optimizing", "lines": "Profiling"}


class WorkDone:
    """The progress displays of all jobs, one for each job. A display begins when the client has accepted its token."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._begun: set[str] = set()
        self._asked: set[str] = set()
        self._latest: dict[str, EditorJob] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def show(self, view: EditorJob) -> None:
        """Begin, update or end the progress of a job. Call it in the event loop."""
        self._latest[view.job] = view
        if view.job in self._begun:
            self._report(view)
        elif view.job not in self._asked and view.active:
            self._asked.add(view.job)
            task = asyncio.get_running_loop().create_task(self._begin(view.job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def job_of(self, token: int | str) -> str | None:
        job = str(token).removeprefix("kernel-assistant/job/")
        return job if job in self._asked else None

    async def _begin(self, job: str) -> None:
        try:
            await self._progress.create_async(_token(job))
        except JsonRpcException:
            return  # the client does not want to show it
        view = self._latest[job]
        title = f"{_DOING.get(view.kind, 'Checking')} {view.class_name}"
        begin = WorkDoneProgressBegin(title=title, cancellable=True, message=message(view), percentage=view.percent)
        self._progress.begin(_token(job), begin)
        self._begun.add(job)
        if not view.active:
            self._report(view)

    def _report(self, view: EditorJob) -> None:
        if view.active:
            self._progress.report(
                _token(view.job),
                WorkDoneProgressReport(message=message(view), percentage=view.percent, cancellable=True),
            )
            return
        self._begun.discard(view.job)
        self._asked.discard(view.job)
        self._latest.pop(view.job, None)
        self._progress.end(_token(view.job), WorkDoneProgressEnd(message=view.message))


def message(view: EditorJob) -> str:
    """Returns one line about a job: its current message, the best candidate unless the message names it, the cost of
    the model, and the time left."""
    best = "" if view.best is None or view.message.startswith("best so far") else f"best {told(view.best)}"
    left = time_left(view.ends, view.now) if view.active else ""
    return " · ".join(filter(None, (view.message, best, of_spending(view.spent), left)))


def _token(job: str) -> str:
    return f"kernel-assistant/job/{job}"
