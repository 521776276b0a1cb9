"""Read candidates and results from the store and the folders of jobs. Reads files: call it in threads."""

from __future__ import annotations

from pathlib import Path

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.records import Evaluation, OptimizeResult
from kernel_assistant.session.edits import apply_job
from kernel_assistant.session.reporting.report import facts, read_evaluation
from kernel_assistant.store import Store


class StoredJobs:
    """The jobs of one state folder. It has nothing of a job on a remote machine (MACHINE:NUMBER)."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir

    def sources(self, candidate: str) -> dict[str, str]:
        """Map name → text of a candidate's files; empty if it is not in the store, which is written after each turn."""
        try:
            stored = self._store().candidate(candidate)
        except KernelAssistantError:
            return {}
        return {} if stored is None else dict(stored.sources)

    def facts(self, result: OptimizeResult, known: Evaluation | None) -> list[tuple[str, str]]:
        """Return the facts that the command line reports. `known` is used if the folder has no evaluation."""
        try:
            return facts(result, read_evaluation(result) or known)
        except (KernelAssistantError, OSError) as error:
            return [("note", f"what the job left cannot be read: {error}")]

    def diff(self, job: str) -> tuple[str, list[str]]:
        """Return the diff of `apply` and its warnings; "" and the error if it fails."""
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
