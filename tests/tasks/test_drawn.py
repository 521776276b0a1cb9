"""Tasks that are drawn for labels: as many of each kind, the same for a seed, and readable as shards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant_training.options.data import LabelArguments
from kernel_assistant_training.synth.answers import DEVICES
from kernel_assistant_training.tasks.drawn import KINDS, drawn_tasks, kind_of
from kernel_assistant_training.tasks.label import run
from kernel_assistant_training.tasks.shards import graph_of, read_rows

pytest.importorskip("pyarrow")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_kinds_take_turns_and_a_seed_repeats_its_tasks(target: str) -> None:
    device = DEVICES[target]
    drawn = drawn_tasks(device, len(KINDS), 4)
    assert [kind for _, kind in drawn] == list(KINDS)
    assert [kind_of(task.graph, device) for task, _ in drawn] == list(KINDS)
    assert len({task.key for task, _ in drawn}) == len(drawn)
    keys = [[task.key for task, _ in drawn_tasks(device, len(KINDS), seed)] for seed in (4, 5)]
    assert keys[0] == [task.key for task, _ in drawn]
    assert not set(keys[0]) & set(keys[1])


@pytest.mark.slow
def test_tasks_are_drawn_where_there_are_none(tmp_path: Path) -> None:
    asked = LabelArguments(out=tmp_path / "new", target="cpu", drawn=len(KINDS), rows_most=0)
    assert run(asked)["rows"] == 0
    rows = read_rows(asked.out)
    assert Counter(row["source"] for row in rows) == Counter(KINDS.keys())
    assert {(row["split"], row["target"], row["eager_ms"]) for row in rows} == {("train", "cpu", None)}
    assert [kind_of(graph_of(row), DEVICES["cpu"]) for row in rows] == list(KINDS)
    files = {path: path.read_bytes() for path in asked.out.glob("tasks-*.parquet")}
    run(asked)
    assert files == {path: path.read_bytes() for path in asked.out.glob("tasks-*.parquet")}


def test_without_tasks_it_says_how_to_get_some(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no shards of tasks") as caught:
        run(LabelArguments(out=tmp_path, target="cpu"))
    assert "--drawn" in caught.value.next_step
    with pytest.raises(UsageError, match="--tasks names others"):
        run(LabelArguments(out=tmp_path, tasks=tmp_path, target="cpu", drawn=3))
