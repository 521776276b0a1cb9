"""The store: round trips, and failures that a disk or another program can cause."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap

import pytest
from msgspec.structs import replace

from kernel_assistant.errors import StoreError, UsageError
from kernel_assistant.events import JobFinished, JobQueued, JobStarted
from kernel_assistant.records import JobOutcome, Step, StopReason, Trajectory, encode
from kernel_assistant.session.hosting.event_log import EventLog, log_path
from kernel_assistant.store import JobKind, JobOptions, JobState, Store
from kernel_assistant.store.database import MIGRATIONS
from tests.common.results import result as finished
from tests.common.tasks import task_of
from tests.session import tiny_host
from tests.tui.parts.events import right, wrong


def task(content="x"):
    return task_of("/src/model.py", content)


def candidate(number):
    return replace(tiny_host.step(number).candidates[0], origin="test")


def step(turn, judge=wrong):
    """A turn with two candidates; by `judge`, neither compiles or both are correct."""
    tried = (candidate(turn), candidate(-turn))
    evaluations = tuple(judge(one.hash(), turn).evaluation for one in tried)
    fields = {"candidates": tried, "evaluations": evaluations}
    return Step(turn=turn, message=f"turn {turn}", started=turn, ended=turn + 0.5, **fields)


def episode(*steps):
    return Trajectory(task=task().hash(), policy="p", steps=steps, stop_reason=StopReason.turns, seconds=2.5)


def result():
    return finished(evaluations=2, seconds=1.5, artifacts={"job": "1"})


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path, lock_wait=0.1)
    yield opened
    opened.close()


def test_a_job_from_queued_to_done(store, tmp_path):
    row = store.add_job(task(), JobOptions(budget=5.0), "cpu:0")
    assert (row.id, row.state) == ("1", JobState.queued)
    store.mark_running(row.id)
    store.mark_ended(row.id, JobState.done, result=result())
    again = Store(tmp_path).job("last")
    assert again.task == task() and again.options == JobOptions(budget=5.0) and again.result == result()
    assert again.state is JobState.done and 0 < again.created <= again.started <= again.ended


def test_steps_and_trajectory_come_back_equal(store):
    row = store.add_job(task(), JobOptions(), "cpu:0")
    for number in (1, 2):
        store.add_step(row.id, step(number))
    store.add_step(row.id, step(2))
    assert store.steps(row.id) == (step(1), step(2))
    assert store.trajectory(row.id) is None
    whole = episode(step(1), step(2), step(3))
    store.add_trajectory(row.id, whole)
    assert store.trajectory(row.id) == whole
    assert store.candidate(candidate(3).hash()) == candidate(3)
    assert store.candidate("nothing") is None


def test_sources_that_have_passed_are_known(store):
    row = store.add_job(task(), JobOptions(), "cpu:0")
    store.add_step(row.id, step(3))
    store.add_step(row.id, step(4, right))
    own = store.add_job(task(), JobOptions(kind=JobKind.verify, candidate=candidate(5)), "cpu:0")
    other = store.add_job(task(), JobOptions(kind=JobKind.verify, candidate=candidate(6)), "cpu:0")
    store.mark_ended(own.id, JobState.done, result=replace(result(), outcome=JobOutcome.no_measurable_gain))
    store.mark_ended(other.id, JobState.done, result=result())
    passed = [number for number in range(3, 7) if store.has_passed(f"// {number}\n")]
    assert passed == [4, 5] and not store.has_passed("// 4")


def test_only_the_same_work_is_found_again(store):
    row = store.add_job(task(), JobOptions(), "cpu:0")
    assert store.find_unfinished(task(), JobOptions()).id == row.id
    assert store.find_unfinished(task("y"), JobOptions()) is None
    assert store.find_unfinished(task(), JobOptions(budget=1.0)) is None
    assert store.mark_interrupted() == [row.id]
    assert store.find_unfinished(task(), JobOptions()).state is JobState.interrupted
    store.mark_ended(row.id, JobState.cancelled)
    assert store.find_unfinished(task(), JobOptions()) is None


def test_edits_are_found_by_path_and_by_job_until_undone(store):
    edit = store.add_edit("/src/model.py", "3", "{}")
    assert store.edits(path="/src/model.py") == store.edits(job="3") == [edit]
    assert store.edits(path="/src/other.py") == []
    store.mark_undone(edit.id)
    assert store.edits(job="3") == []
    assert [row.id for row in store.edits(job="3", undone=True)] == [edit.id]


def test_numbers_are_not_given_twice_even_without_the_old_database(tmp_path):
    (tmp_path / "jobs" / "41").mkdir(parents=True)
    store = Store(tmp_path)
    assert store.add_job(task(), JobOptions(), "cpu:0").id == "42"


def test_unknown_jobs_are_bad_use(store):
    for name in ("7", "last", "../etc", "٣"):
        with pytest.raises(UsageError, match="no job"):
            store.job(name)


@pytest.mark.parametrize("damage", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_database_is_moved_aside_not_lost(tmp_path, damage):
    (tmp_path / "store.sqlite").write_bytes(damage)
    store = Store(tmp_path)
    assert store.add_job(task(), JobOptions(), "cpu:0").id == "1"
    assert (tmp_path / "store.sqlite.damaged-1").read_bytes() == damage


def test_damage_in_the_middle_is_found_on_opening(tmp_path):
    store = Store(tmp_path)
    for number in range(200):
        store.add_job(task("x" * 2000 + str(number)), JobOptions(), "cpu:0")
    store.close()
    path = tmp_path / "store.sqlite"
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 60] = b"\x5a" * (4096 * 57)
    path.write_bytes(data)
    assert Store(tmp_path).jobs() == []
    assert (tmp_path / "store.sqlite.damaged-1").exists()


def test_the_history_is_rebuilt_from_what_jobs_left(tmp_path):
    """There are a finished job with its episode, an interrupted one, and folders without information."""
    store = Store(tmp_path)
    played = episode(step(1), step(2))
    finished, half = (store.add_job(task(name), JobOptions(budget=5.0), "cpu:0") for name in ("a", "b"))
    for row in (finished, half):
        log = EventLog(log_path(tmp_path / "jobs", row.id), row.id)
        log.append(JobQueued(task=row.task.name, target="cpu"))
        log.append(JobStarted(device="cpu:0"))
        if row is finished:
            log.append(JobFinished(result=result()))
        folder = tmp_path / "jobs" / row.id / "result"
        folder.mkdir()
        (folder / "task.json").write_bytes(encode(row.task))
        (folder / "trajectory.json").write_bytes(encode(played))
    (tmp_path / "jobs" / "3" / "result").mkdir(parents=True)
    (tmp_path / "jobs" / "4" / "result").mkdir(parents=True)
    (tmp_path / "jobs" / "4" / "result" / "task.json").write_text("{")
    store.close()
    (tmp_path / "store.sqlite").write_bytes(b"not a database at all" * 100)

    again = Store(tmp_path)
    newest, oldest = again.jobs()
    assert (newest.id, newest.state, newest.result) == ("2", JobState.interrupted, None)
    assert (oldest.id, oldest.state, oldest.result) == ("1", JobState.done, result())
    assert oldest.task == finished.task and oldest.device == "cpu:0" and oldest.ended >= oldest.started > 0
    assert again.trajectory("1") == played
    assert (tmp_path / "store.sqlite.damaged-1").read_bytes() == b"not a database at all" * 100
    (line,) = again.news()
    assert "damaged-1; 2 jobs were rebuilt" in line and "remove that file once" in line
    assert again.news() == [] and Store(tmp_path).news() == []
    assert again.add_job(task(), JobOptions(), "cpu:0").id == "5"


def test_a_store_that_is_open_follows_when_the_file_is_moved(tmp_path, store):
    store.add_job(task(), JobOptions(), "cpu:0")
    (tmp_path / "store.sqlite").rename(tmp_path / "store.sqlite.damaged-1")
    assert store.jobs() == []
    store.add_job(task(), JobOptions(), "cpu:0")
    assert len(Store(tmp_path).jobs()) == 1


def test_what_to_try_is_kept_with_a_failure_also_in_a_store_of_an_earlier_version(tmp_path):
    connection = sqlite3.connect(tmp_path / "store.sqlite")
    for change in MIGRATIONS[:5]:
        connection.executescript(change)
    connection.execute("PRAGMA user_version = 5")
    connection.close()
    store = Store(tmp_path)
    row = store.add_job(task(), JobOptions(), "cpu:0")
    assert row.next_step == ""
    store.mark_ended(row.id, JobState.failed, error="forward raises", next_step="mend it")
    failed = store.job(row.id)
    assert (failed.error, failed.next_step) == ("forward raises", "mend it")
    assert failed.summary()["next_step"] == "mend it"
    store.mark_queued(row.id)
    assert (store.job(row.id).error, store.job(row.id).next_step) == ("", "")


def test_a_newer_schema_is_refused(tmp_path):
    Store(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "store.sqlite")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="newer kernel-assistant") as caught:
        Store(tmp_path)
    assert "upgrade" in caught.value.next_step


def test_a_locked_database_is_one_clear_line(tmp_path, store):
    other = sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="locked by another program"):
        store.add_job(task(), JobOptions(), "cpu:0")
    other.execute("ROLLBACK")
    other.close()
    assert store.add_job(task(), JobOptions(), "cpu:0").id == "1"


def test_a_full_disk_is_one_clear_line_and_loses_nothing(tmp_path):
    """A limit on the size of files stands for the full disk: writes fail at the same point, also for root."""
    code = """
        import resource, sys
        from pathlib import Path
        from kernel_assistant.errors import StoreError
        from kernel_assistant.records import InputSource, KernelTask, Workload
        from kernel_assistant.store import JobOptions, Store
        store = Store(Path(sys.argv[1]))
        def add(size):
            task = KernelTask(path="/m.py", content="x" * size, class_name="N", source=InputSource.get_inputs,
                              workloads=(Workload(),))
            store.add_job(task, JobOptions(), "cpu:0")
        add(10)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        try:
            add(1_000_000)
        except StoreError as error:
            print(error.cause, "|", error.next_step)
        add(20)
        print([len(row.task.content) for row in store.jobs()])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    first, second = done.stdout.splitlines()
    assert "store.sqlite" in first and "free disk space" in first
    assert second == "[20, 10]"


def test_a_folder_that_is_a_file_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot use"):
        Store(tmp_path / "file" / "state")


def test_several_processes_open_a_new_store_at_once(tmp_path):
    code = (
        "import sys; from pathlib import Path; from kernel_assistant.store import Store\n"
        "print(len(Store(Path(sys.argv[1])).jobs()))"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(6)
    ]
    assert [child.communicate() for child in children] == [(b"0\n", b"")] * 6
