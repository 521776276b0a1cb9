"""The jobs of several configurations of one class, applied one after another to the user's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.records import InputSource
from kernel_assistant.session.class_edits import ChosenJobs, apply_jobs
from kernel_assistant.session.edits import FileSelection, undo_at
from kernel_assistant.store import JobOptions, JobState, Store
from kernel_assistant.worker.applied.parts import Parts
from tests.apply.conftest import change, with_width
from tests.common.results import best, result
from tests.common.tasks import task_of


@pytest.fixture
def job(tmp_path: Path, model: Path, user_file: str, make_result):
    """A function: width of the instances, whether the candidate is correct → a job of the class."""
    store = Store(tmp_path / "state")

    def ended(width: int = 64, *, correct: bool = True):
        folder = with_width(make_result(user_file), width)
        if not correct:
            change(folder / "evaluation.json", outcome="incorrect", timing=None, accuracy=None)
        task = task_of(model, user_file, "Gate", source=InputSource.recorded)
        row = store.add_job(task, JobOptions(), "cpu:0")
        artifacts = {"plan.json": str(folder / "plan.json")}
        store.mark_ended(row.id, JobState.done, result=result(best=best(), artifacts=artifacts))
        return store.job(row.id)

    ended.store = store
    yield ended
    store.close()


def test_kernels_of_all_sizes_lie_side_by_side_and_are_taken_back_together(job, model, user_file) -> None:
    rows = (job(64), job(96), job(32))
    planned, _ = apply_jobs(job.store, ChosenJobs(rows), dry_run=True)
    assert len(planned) == 3 and model.read_text() == user_file and not job.store.edits()
    done, warnings = apply_jobs(job.store, ChosenJobs(rows), dry_run=False)
    assert [one.row.id for one in done] == ["1", "2", "3"] and done[0].result.diff and not done[1].result.diff
    assert all("was not timed" in one for one in warnings)
    names = Parts(str(done[-1].result.package), "Gate").names()
    assert sum(name.endswith("plan.json") for name in names) == 3 and len(job.store.edits()) == 3
    assert undo_at(job.store, FileSelection(model, "Gate")).restored
    assert model.read_text() == user_file and not job.store.edits()


def test_a_job_that_cannot_be_applied_does_not_stop_the_others(job, model) -> None:
    rows = (job(96, correct=False), job(64))
    done, warnings = apply_jobs(job.store, ChosenJobs(rows, ("a note",)), dry_run=False)
    assert [one.row.id for one in done] == ["2"] and [edit.job for edit in job.store.edits()] == ["2"]
    assert warnings[0] == "a note" and warnings[1].startswith("job 1: not applied: the candidate was not verified")
    with pytest.raises(UsageError, match="not verified"):
        apply_jobs(job.store, ChosenJobs((rows[0],)), dry_run=False)
