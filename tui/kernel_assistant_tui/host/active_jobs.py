"""Find the jobs of the project that a session host runs, and those that were interrupted."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.session.client import Client
from kernel_assistant.session.edits import place_of
from kernel_assistant.store import JobRow, JobState
from kernel_assistant_tui.project.project import Project

_OPEN = (JobState.queued, JobState.running, JobState.interrupted)


@dataclass(frozen=True)
class ActiveJobs:
    """The jobs of a project that have not ended, newest first. `left` are jobs of a host that died; attaching to one
    resumes it.
    """

    active: tuple[JobRow, ...] = ()
    left: tuple[JobRow, ...] = ()


def in_hand(project: Project, client: Client) -> ActiveJobs:
    """Return the jobs of the project that have not ended. Starts no host. Raises StoreError, HostError."""
    if not project.has_store:
        return ActiveJobs()
    rows = project.store.jobs(states=_OPEN)
    mine = [row for row in rows if place_of(row.task, row.options).path.is_relative_to(project.root)]
    alive = any(row.state.active for row in mine) and client.status() is not None
    active = tuple(row for row in mine if alive and row.state.active)
    return ActiveJobs(active, tuple(row for row in mine if row not in active))
