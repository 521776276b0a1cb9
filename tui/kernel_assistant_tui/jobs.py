"""The jobs that are open in tabs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from kernel_assistant.events import AnyEvent
from kernel_assistant.records import OptimizeResult
from kernel_assistant.remote.job import RemoteJob
from kernel_assistant.session.edits import FileSelection, place_of
from kernel_assistant.session.kinds.outcome import is_unconfirmed
from kernel_assistant.store import JobKind, JobRow, JobState
from kernel_assistant_tui.view.folding import fold
from kernel_assistant_tui.view.search_view import SearchView


@dataclass(frozen=True)
class OpenJob:
    """A job that is open in a tab. `key` is its number, or MACHINE:NUMBER on a remote machine; `selection` is its file
    and class; `view` is its state. `number` is its number in the local store, "" while it runs on a remote machine.
    `followed` says whether a thread receives its events."""

    key: str
    selection: FileSelection
    kind: JobKind
    view: SearchView
    number: str = ""
    followed: bool = False

    @property
    def running(self) -> bool:
        return self.followed and self.view.state.active

    @property
    def interrupted(self) -> bool:
        """Whether the job has not ended, but no host runs it (as far as is known)."""
        return not self.followed and (self.view.state.active or self.view.state is JobState.interrupted)

    @property
    def has_kernels(self) -> bool:
        return self.view.result is not None and "plan.json" in self.view.result.artifacts

    @property
    def is_unconfirmed(self) -> bool:
        return self.view.result is not None and is_unconfirmed(self.view.result)

    @property
    def label(self) -> str:
        kind = "" if self.kind is JobKind.optimize else f"{self.kind.value} "
        mark = " (interrupted)" if self.interrupted else ""
        return f"{self.key} {kind}{self.selection.class_name}{mark}"


@dataclass
class OpenJobs:
    """The open jobs by key, in the order in which they were opened."""

    _jobs: dict[str, OpenJob] = field(default_factory=dict)

    def __iter__(self) -> Iterator[OpenJob]:
        return iter(self._jobs.values())

    def __contains__(self, key: str) -> bool:
        return key in self._jobs

    def get(self, key: str) -> OpenJob | None:
        return self._jobs.get(key)

    def open(self, row: JobRow, view: SearchView | None = None) -> OpenJob:
        """Adds a job of the store, with its state `view`, and returns it. If the job is open already, returns it
        unchanged."""
        selection = place_of(row.task, row.options)
        return self._jobs.setdefault(
            row.id, OpenJob(row.id, selection, row.options.kind, view or SearchView(job=row.id), row.id)
        )

    def open_remote(self, remote_job: RemoteJob) -> OpenJob:
        """Open a job that runs on a remote machine."""
        selection = FileSelection(Path(remote_job.path), remote_job.class_name)
        return self._jobs.setdefault(
            remote_job.job, OpenJob(remote_job.job, selection, JobKind(remote_job.kind), SearchView(job=remote_job.job))
        )

    def brought(self, key: str, result: OptimizeResult) -> None:
        """Sets the result of the remote job `key`, after the result was copied to the local store."""
        known = self._jobs.get(key)
        if known is not None:
            view = msgspec.structs.replace(known.view, result=result)
            self._jobs[key] = replace(known, view=view, number=result.artifacts["job"])

    def close(self, key: str) -> None:
        self._jobs.pop(key, None)

    def running(self) -> list[OpenJob]:
        return [one for one in self._jobs.values() if one.running]

    def follow(self, key: str, *, followed: bool) -> None:
        if key in self._jobs:
            self._jobs[key] = replace(self._jobs[key], followed=followed)

    def fold(self, key: str, events: Iterable[AnyEvent]) -> OpenJob | None:
        """Update a job by `events` and return it; None if its tab was closed meanwhile."""
        known = self._jobs.get(key)
        if known is None:
            return None
        self._jobs[key] = replace(known, view=fold(known.view, *events))
        return self._jobs[key]
