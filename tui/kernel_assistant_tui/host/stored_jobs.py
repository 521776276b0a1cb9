"""Reads jobs from the store and their folders: unfinished jobs, candidates and results. Call the functions in
threads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.records import Evaluation, OptimizeResult
from kernel_assistant.session.client import Client
from kernel_assistant.session.edits import apply_job, place_of
from kernel_assistant.session.reporting.report import facts, read_evaluation
from kernel_assistant.store import JobRow, JobState, Store
from kernel_assistant_tui.project.project import Project

_OPEN = (JobState.queued, JobState.running, JobState.interrupted)


@dataclass(frozen=True)
class ActiveJobs:
    """The unfinished jobs of a project, newest first. `active` are those that a session host runs or has in its queue.
    `left` are those whose host has died; attaching to one of them resumes it."""

    active: tuple[JobRow, ...] = ()
    left: tuple[JobRow, ...] = ()


def in_hand(project: Project, client: Client) -> ActiveJobs:
    """Returns the unfinished jobs of the project's files. Does not start a host. Raises StoreError or HostError."""
    if not project.has_store:
        return ActiveJobs()
    rows = project.store.jobs(states=_OPEN)
    mine = [row for row in rows if place_of(row.task, row.options).path.is_relative_to(project.root)]
    alive = any(row.state.active for row in mine) and client.status() is not None
    active = tuple(row for row in mine if alive and row.state.active)
    return ActiveJobs(active, tuple(row for row in mine if row not in active))


class StoredJobs:
    """The jobs of one state folder. Jobs that run on a remote machine (MACHINE:NUMBER) are not in it."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir

    def sources(self, candidate: str) -> dict[str, str]:
        """Returns a map from name to text of a candidate's files; `candidate` is its hash. The map is empty if the
        candidate is not in the store yet: candidates are stored after each turn."""
        try:
            stored = self._store().candidate(candidate)
        except KernelAssistantError:
            return {}
        return {} if stored is None else dict(stored.sources)

    def facts(self, result: OptimizeResult, known: Evaluation | None) -> list[tuple[str, str]]:
        """Returns the facts about a result as (label, text), the same that the command line reports. `known` is the
        evaluation to use if the job's folder has none."""
        try:
            return facts(result, read_evaluation(result) or known)
        except (KernelAssistantError, OSError) as error:
            return [("note", f"what the job left cannot be read: {error}")]

    def diff(self, job: str) -> tuple[str, list[str]]:
        """Returns the diff that `apply` would make, and its warnings; ("", [error]) if it fails."""
        try:
            store = self._store()
            applied, warnings = apply_job(store, store.job(job), dry_run=True, force=True)
        except KernelAssistantError as error:
            return "", [error.cause]
        except OSError as error:
            return "", [str(error)]
        return applied.diff, warnings

    def _store(self) -> Store:
        return Store(self._state_dir)
