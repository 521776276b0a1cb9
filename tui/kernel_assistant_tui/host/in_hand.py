"""Which jobs of the project somebody works on at the moment, and which nobody does any more."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.session.client import Client
from kernel_assistant.session.edits import place_of
from kernel_assistant.store import JobRow, JobState
from kernel_assistant_tui.project.project import Project

_OPEN = (JobState.queued, JobState.running, JobState.interrupted)


@dataclass(frozen=True)
class InHand:
    """Newest first. `left` are those of a host that died; they go on when somebody attaches to them."""

    active: tuple[JobRow, ...] = ()
    left: tuple[JobRow, ...] = ()


def in_hand(project: Project, client: Client) -> InHand:
    """Starts no host. Raises StoreError, HostError."""
    if not project.has_store:
        return InHand()
    rows = project.store.jobs(states=_OPEN)
    mine = [row for row in rows if place_of(row.task, row.options).path.is_relative_to(project.root)]
    alive = any(row.state.active for row in mine) and client.status() is not None
    active = tuple(row for row in mine if alive and row.state.active)
    return InHand(active, tuple(row for row in mine if row not in active))
