"""Labels that another number of processes continues, and tasks that cause unexpected errors."""

from __future__ import annotations

import errno
import json
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from kernel_assistant.errors import DeviceError, InternalError, MissingError, UsageError
from kernel_assistant.records import encode
from kernel_assistant_training.episodes.subject import LessonTask, subjects
from kernel_assistant_training.options.data import LabelArguments
from kernel_assistant_training.synth import module_text
from kernel_assistant_training.tasks import label
from kernel_assistant_training.tasks.label import run
from kernel_assistant_training.tasks.label_rows import Label, read_labels, rows_of
from kernel_assistant_training.tasks.labeller import MOST_FAILED, Labeller, of_machine
from kernel_assistant_training.tasks.shards import read_rows, task_schema, write_shards
from tests.common.caches import new_cache

pytest.importorskip("pyarrow")
#: What becomes of a graph whose sizes nobody knows.
MESSAGE = "PlanError: bad expression 'B': unknown dimension 'B'"


def _row(number: int, one: LessonTask) -> dict[str, object]:
    row: dict[str, object] = {"key": one.key, "number": number, "source": "torch", "split": "train", "target": "cpu"}
    row |= {"operators": ["x"] * one.level, "operator_count": one.level, "attribution": [], "eager_ms": 1.0}
    return row | {"text": module_text(one.graph), "graph": encode(one.graph).decode(), "seed": 0}


def _without_sizes(one: LessonTask) -> str:
    """A graph that no tracer would write: it can be read, but its sizes are unknown."""
    return encode(msgspec.structs.replace(one.graph, dims={})).decode()


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabelArguments:
    """Three tasks that can be judged."""
    new_cache(tmp_path / "cache")
    (tmp_path / "tasks").mkdir()
    rows = [_row(number, one) for number, one in enumerate(islice(subjects(4, "cpu"), 3))]
    write_shards(tmp_path / "tasks", "tasks", rows, task_schema())
    monkeypatch.setenv("KERNEL_ASSISTANT_HOME", str(tmp_path))
    return LabelArguments(out=tmp_path, tasks=tmp_path / "tasks", target="cpu", candidates=2)


def _broken(first: int, count: int) -> list[dict[str, object]]:
    """Tasks whose graphs have no sizes, numbered from `first`."""
    some = enumerate(islice(subjects(5, "cpu"), count), first)
    return [{**_row(number, one), "graph": _without_sizes(one)} for number, one in some]


@pytest.mark.lost
@pytest.mark.slow
def test_another_number_of_processes_goes_on_and_a_broken_task_costs_itself(options: LabelArguments) -> None:
    folder = options.out / "labels"
    first = run(options)
    assert first["rows"] == 6
    # As an earlier version wrote it down.
    asked = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**asked, "parts": 1}))
    before = list(read_labels(folder))
    for task in {one.task for one in before}:
        rows = sorted((one for one in before if one.task == task), key=lambda one: one.number)
        fastest = min(rows, key=lambda one: one.candidate_ms or 0.0)
        assert [one.again_ms is not None for one in rows] == [one in (rows[0], fastest) for one in rows]
    broken = _broken(100, 2)
    write_shards(options.tasks, "tasks", [*broken, *read_rows(options.tasks)], task_schema())
    again = run(replace(options, processes=2))
    found = list(read_labels(folder))
    assert Counter(one.outcome for one in found)["failed"] == 2
    failed = [one for one in found if one.outcome == "failed"]
    assert sorted(one.task for one in failed) == sorted(str(one["key"]) for one in broken)
    assert all(one.message == MESSAGE and not one.candidate for one in failed)
    assert [one for one in found if one.outcome != "failed"] == before
    assert again["rows"] == 8 == len(read_rows(folder, "labels"))
    assert run(replace(options, processes=3))["rows"] == 8
    with pytest.raises(UsageError, match="candidates 2, not 3"):
        run(replace(options, candidates=3))


@pytest.mark.lost
@pytest.mark.slow
def test_the_rest_of_a_half_done_task_is_not_timed_twice(options: LabelArguments) -> None:
    """Its fastest candidate may be one of those before."""
    run(options)
    (path,) = (options.out / "labels").glob("labels-*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    run(options)
    rows = list(read_labels(options.out / "labels"))
    assert len(rows) == len(lines)
    assert (rows[-1].number, rows[-1].again_ms) == (1, None)
    assert rows[0].again_ms is not None


@pytest.mark.lost
@pytest.mark.slow
def test_no_task_is_begun_once_there_are_rows_enough(options: LabelArguments, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label, "LOOK_SECONDS", 0.02)
    # Who asks for an end sees the first task's rows when the second has begun.
    assert run(replace(options, rows_most=1))["rows"] in (2, 4)
    known = len(list(read_labels(options.out / "labels")))
    assert run(replace(options, rows_most=known))["rows"] == known
    assert run(replace(options, rows_most=6))["rows"] == 6


def test_rows_are_known_whichever_part_wrote_them(tmp_path: Path) -> None:
    def line(task: str, candidate: str, number: int = 0) -> bytes:
        one = Label(task=task, number=number, target="cpu", device="x", outcome="correct", candidate=candidate)
        return msgspec.json.encode(one) + b"\n"

    (tmp_path / "labels-00.jsonl").write_bytes(line("a", "1") + line("b", ""))
    (tmp_path / "labels-07.jsonl").write_bytes(line("a", "2", 1) + line("c", "3") + line("d", "4")[:-9])
    done, without = rows_of(tmp_path)
    assert (done, without) == ({"a": 2, "c": 1}, {"b"})


def test_what_the_next_task_would_meet_too_is_no_tasks_fault() -> None:
    for error in (MissingError("no torch"), DeviceError("gone"), InternalError("ours"), MemoryError()):
        assert of_machine(error)
    assert of_machine(OSError(errno.ENOSPC, "full"))
    for error in (UsageError("odd"), KeyError("B"), FileExistsError(errno.EEXIST, "there"), AssertionError()):
        assert not of_machine(error)


@pytest.mark.lost
@pytest.mark.slow
def test_where_everything_fails_it_is_not_the_tasks(options: LabelArguments) -> None:
    write_shards(options.tasks, "tasks", _broken(0, MOST_FAILED + 3), task_schema())
    (options.out / "labels").mkdir()
    said = f"{MOST_FAILED} tasks in a row failed, the last with PlanError"
    with Labeller(options, 0) as labeller, pytest.raises(InternalError, match=said):
        labeller.run()
    assert len(list(read_labels(options.out / "labels"))) == MOST_FAILED
