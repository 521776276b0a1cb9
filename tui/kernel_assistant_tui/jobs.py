"""The jobs that are open in tabs: what is known of each, and which is shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from kernel_assistant.events import AnyEvent
from kernel_assistant.records import OptimizeResult
from kernel_assistant.remote.away import Away
from kernel_assistant.session.edits import Place, place_of
from kernel_assistant.store import JobKind, JobRow, JobState
from kernel_assistant_tui.view.folding import fold
from kernel_assistant_tui.view.job_view import JobView, empty


@dataclass(frozen=True)
class OpenJob:
    """`key` is the job's number, or MACHINE:NUMBER; `number` that in the store here, "" as long as it is away.
    `followed`: a thread waits for its events."""

    key: str
    place: Place
    kind: JobKind
    view: JobView
    number: str = ""
    followed: bool = False

    @property
    def running(self) -> bool:
        return self.followed and self.view.state.active

    @property
    def interrupted(self) -> bool:
        """It has not ended, and nobody works on it as far as we know."""
        return not self.followed and (self.view.state.active or self.view.state is JobState.interrupted)

    @property
    def has_kernels(self) -> bool:
        return self.view.result is not None and "plan.json" in self.view.result.artifacts

    @property
    def label(self) -> str:
        kind = "" if self.kind is JobKind.optimize else f"{self.kind.value} "
        mark = " (interrupted)" if self.interrupted else ""
        return f"{self.key} {kind}{self.place.class_name}{mark}"


@dataclass
class OpenJobs:
    """In order of opening."""

    _jobs: dict[str, OpenJob] = field(default_factory=dict)

    def __iter__(self) -> Iterator[OpenJob]:
        return iter(self._jobs.values())

    def __contains__(self, key: str) -> bool:
        return key in self._jobs

    def get(self, key: str) -> OpenJob | None:
        return self._jobs.get(key)

    def open(self, row: JobRow, view: JobView | None = None) -> OpenJob:
        """A tab for a job of the store, of which `view` is known; the one that is there where there is one."""
        place = place_of(row.task, row.options)
        return self._jobs.setdefault(row.id, OpenJob(row.id, place, row.options.kind, view or empty(row.id), row.id))

    def open_away(self, away: Away) -> OpenJob:
        """A tab for a job on another machine."""
        place = Place(Path(away.path), away.class_name)
        return self._jobs.setdefault(away.job, OpenJob(away.job, place, JobKind(away.kind), empty(away.job)))

    def brought(self, key: str, result: OptimizeResult) -> None:
        """The result of a job that was away is here, with its files."""
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
        """The job after `events`; None for one that was closed meanwhile."""
        known = self._jobs.get(key)
        if known is None:
            return None
        self._jobs[key] = replace(known, view=fold(known.view, *events))
        return self._jobs[key]
