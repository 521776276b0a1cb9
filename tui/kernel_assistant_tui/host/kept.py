"""What the store and a job's folder have of its candidates. Reads files: for threads, not for the event loop."""

from __future__ import annotations

from pathlib import Path

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.records import Evaluation, OptimizeResult
from kernel_assistant.session.edits import apply_job
from kernel_assistant.session.report import facts, read_evaluation
from kernel_assistant.store import Store


class Kept:
    """Of the jobs of one state folder. A job of another machine (MACHINE:NUMBER) is known by its events alone."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir

    def sources(self, candidate: str) -> dict[str, str]:
        """Name → text, nothing where the store does not have it: it is written when a turn ends."""
        try:
            found = self._store().candidate(candidate)
        except KernelAssistantError:
            return {}
        return {} if found is None else dict(found.sources)

    def facts(self, result: OptimizeResult, known: Evaluation | None) -> list[tuple[str, str]]:
        """As the command line reports them; `known` is the last evaluation that events told of."""
        try:
            return facts(result, read_evaluation(result) or known)
        except (KernelAssistantError, OSError) as error:
            return [("note", f"what the job left cannot be read: {error}")]

    def diff(self, job: str) -> tuple[str, list[str]]:
        """What `apply` would change, with what it would warn of; "" and why where it would change nothing."""
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
