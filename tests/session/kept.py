"""A cancelled job that kept a candidate, which was not confirmed."""

from __future__ import annotations

from pathlib import Path

from kernel_assistant.config import Settings
from kernel_assistant.records import Candidate, JobOutcome, encode
from kernel_assistant.session.prepare import prepare
from kernel_assistant.store import JobRow, JobState, Store
from tests.common.results import result
from tests.session.tiny_host import step


def add_cancelled(store: Store, path: Path, settings: Settings, folder: Path) -> tuple[JobRow, Candidate]:
    """Adds the job for the class Gate of a file; its candidate is kept in `folder`."""
    (candidate,) = step(1).candidates
    (folder / "sources").mkdir(parents=True)
    (folder / "plan.json").write_bytes(encode(candidate.plan))
    (folder / "sources/f.cpp").write_text(candidate.sources["f.cpp"])
    row = store.add_job(*prepare(f"{path}:Gate", settings), "cpu")
    kept = result(outcome=JobOutcome.cancelled, artifacts={"plan.json": str(folder / "plan.json")})
    store.mark_ended(row.id, JobState.cancelled, result=kept)
    return row, candidate
