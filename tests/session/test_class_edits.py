"""Which jobs `apply` takes of a class whose configurations have a job each."""

from __future__ import annotations

import json

import msgspec
import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.records import InputSource, JobOutcome, Workload
from kernel_assistant.records.scan import Sample, ScannedConfiguration
from kernel_assistant.session.class_edits import jobs_to_apply
from kernel_assistant.session.scanning.recorded import class_of_task
from kernel_assistant.session.served_calls import left_to_original
from kernel_assistant.store import JobOptions, JobState
from kernel_assistant.store.scans import ScanStore
from tests.common.results import best, result
from tests.common.tasks import task_of
from tests.session.conftest import NORM
from tests.session.test_program_gain import scan, scanned

KEPT = {"plan.json": "/nowhere/plan.json"}


@pytest.fixture
def job(store, settings, path):
    """A function: number of the scan, configuration (folder and sample), fields of the result → an ended job."""

    def ended(number, folder, sample=0, *, text=NORM, target="cpu", **fields):
        recording = str(settings.state_dir / "scans" / str(number) / "run-1" / "9" / folder)
        workload = Workload(args=f"recorded({sample})[0]", kwargs=f"recorded({sample})[1]")
        recorded = {"source": InputSource.recorded, "workloads": (workload,), "recording": recording}
        task = task_of(path, text, "Norm", target=target, **recorded)
        row = store.add_job(task, JobOptions(), "cpu:0")
        fields = {"best": best(), "artifacts": KEPT, **fields}
        store.mark_ended(row.id, JobState.done, result=result(**fields))
        return row.id

    return ended


NO_GAIN = {"outcome": JobOutcome.no_measurable_gain}


def chosen(store, settings, what, **options):
    return [row.id for row in jobs_to_apply(store, what, settings, **options).rows]


def test_all_configurations_of_the_class_are_taken_and_one_by_its_number(store, settings, job, path):
    first, second, third = job(1, "c0v0"), job(1, "c0v1"), job(1, "c0v0", 1)
    for what in ("last", str(path), f"{path}:Norm"):
        assert chosen(store, settings, what) == [first, second, third]
    assert chosen(store, settings, second) == [second]


def test_the_newest_job_with_a_gain_counts_of_each_configuration(store, settings, job, path):
    old, other = job(1, "c0v0"), job(1, "c0v1", **NO_GAIN)
    newer = job(1, "c0v0", best=best(speedup_vs_eager=9.0))
    worse = job(1, "c0v0", **NO_GAIN)
    assert chosen(store, settings, f"{path}:Norm") == [newer] and old != newer
    assert chosen(store, settings, f"{path}:Norm", force=True) == [other, newer]
    assert chosen(store, settings, "last") == [newer]
    failed = job(1, "c0v2", **NO_GAIN)
    last = jobs_to_apply(store, "last", settings)
    assert [row.id for row in last.rows] == [newer] and last.notes[0].startswith(f"job {failed} is not applied: ")
    assert worse not in chosen(store, settings, "last", force=True)


@pytest.mark.parametrize(
    "stranger", [{"number": 2}, {"target": "cuda"}, {"text": NORM.replace("relu", "tanh")}, {"artifacts": {}}]
)
def test_jobs_that_do_not_belong_together_stay_apart(store, settings, job, stranger):
    """Another scan, another device, another text of the class, and a job without kernels."""
    job(**{"number": 1, "folder": "c0v1", **stranger})
    mine = job(1, "c0v0")
    assert chosen(store, settings, "last") == [mine]


@pytest.fixture
def scan_number(settings, path):
    """The number of a scan with two configurations of the class, c0v0 with 12 calls and c0v1 with 8, of 26 calls."""
    scans = ScanStore(settings.state_dir)
    number, folder = scans.begin(("python", "net.py"), "/project")
    kept = [str(folder / "run-1" / "9" / name) for name in ("c0v0", "c0v1")]
    samples = (Sample(number=0, text="", exact=True),)
    more = ScannedConfiguration(seconds=1.0, folder=kept[1], training=False, samples=samples, calls=8)
    main = {"folder": kept[0], "samples": samples, "main_calls": 12, "calls": 26}
    scans.finish(msgspec.structs.replace(scan(scanned("Norm", 4.0, path=str(path), more=(more,), **main)), id=number))
    return number


def test_a_class_is_named_by_its_scan(store, settings, job, scan_number):
    with pytest.raises(UsageError, match="there is no job for Norm of scan 1"):
        jobs_to_apply(store, f"{scan_number}:Norm", settings)
    jobs = [job(scan_number, "c0v0"), job(scan_number, "c0v1", **NO_GAIN)]
    assert chosen(store, settings, f"{scan_number}:Norm") == jobs[:1]
    assert chosen(store, settings, f"{scan_number}:Norm", force=True) == jobs
    job(scan_number, "c0v0", **NO_GAIN)
    with pytest.raises(UsageError, match="saw no class Other"):
        jobs_to_apply(store, f"{scan_number}:Other", settings)


def test_calls_that_stay_the_originals_are_named(store, settings, job, path, scan_number):
    first, second, other = (store.job(job(scan_number, folder)) for folder in ("c0v0", "c0v1", "c9v9"))
    assert "1 of 2 configurations of Norm in scan 1 have no applied job, 8 of 26 calls" in left_to_original(
        store, [first]
    )
    assert left_to_original(store, [second]).count("12 of 26 calls") == 1
    assert left_to_original(store, [first, second]) == left_to_original(store, [other]) == ""
    store.add_edit(str(path), first.id, json.dumps({"class": "Norm"}))
    assert left_to_original(store, [second]) == ""
    assert class_of_task(first.task, settings.state_dir).row.calls == 26


def test_declared_inputs_have_one_job(store, settings, path):
    task = task_of(path, NORM, "Norm", source=InputSource.comment)
    for _ in range(2):
        row = store.add_job(task, JobOptions(), "cpu:0")
        store.mark_ended(row.id, JobState.done, result=result(best=best(), artifacts=KEPT))
    assert chosen(store, settings, "last") == chosen(store, settings, f"{path}:Norm") == [row.id]
