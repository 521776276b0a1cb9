"""Tests episodes and labels that are killed: no process plays on, and a new start continues with the stored ones."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from itertools import islice
from random import Random

import msgspec
import pytest

from kernel_assistant.environment.ceilings import keep_ceilings
from kernel_assistant.records import encode
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.episodes.lines import Episode, read_lines
from kernel_assistant_training.episodes.subject import subjects
from kernel_assistant_training.synth import module_text
from kernel_assistant_training.tasks.label_rows import read_labels
from kernel_assistant_training.tasks.shards import read_rows, task_schema, write_shards
from tests.failures.stages import Started, command

pytestmark = [pytest.mark.lost, pytest.mark.slow, pytest.mark.usefixtures("own_templates")]


@pytest.fixture
def home(own_state):
    """A state folder with the device's bandwidths."""
    device = msgspec.structs.replace(detect("cpu"), copy_bandwidth=5e10, read_bandwidth=6e10)
    keep_ceilings(device, own_state / "home" / "cache")
    return own_state


def test_players_end_with_who_started_them(home):
    out, random = home / "episodes", Random(2)
    words = ["episodes", "--target", "cpu", "--seconds", "600", "--out", str(out), "--processes", "2", "--lessons", "2"]
    for number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 143)):
        before = lines(out)
        stage = Started(home / number.name, command, words)
        assert stage.when(lambda at=before: lines(out) > at, random.uniform(0, 0.3)).end(number) == code, stage.said
    assert "episodes was ended by SIGTERM: the same command goes on where it was" in stage.said
    assert "Traceback" not in stage.said
    found = [one for path in out.glob("episodes-*.jsonl") for one in read_lines(path, Episode)]
    said = [(one.key, *(each["content"] for each in one.messages)) for one in found]
    assert len(set(said)) == len(said) >= 2


def lines(out):
    return sum(path.read_bytes().count(b"\n") for path in out.glob("episodes-*.jsonl"))


@pytest.fixture
def shards(home):
    """Shards with six tasks."""
    (home / "tasks").mkdir()
    rows = []
    for number, one in enumerate(islice(subjects(4, "cpu"), 6)):
        row = {"key": one.key, "number": number, "source": "torch", "split": "train", "target": "cpu"}
        row |= {"operators": ["x"] * one.level, "operator_count": one.level, "attribution": [], "eager_ms": 1.0}
        row |= {"text": module_text(one.graph), "graph": encode(one.graph).decode(), "seed": 0}
        rows.append(row)
    write_shards(home / "tasks", "tasks", rows, task_schema())
    return home / "tasks"


def test_labels_go_on_without_a_part_that_died_and_tell_it(home, shards):
    out = home / "out"
    words = ["label", "--out", str(out), "--tasks", str(shards), "--target", "cpu", "--candidates", "2"]
    words += ["--processes", "2"]
    died = Started(home / "died", command, words)
    died.when(lambda: len(died.below("spawn_main")) == 2)
    os.kill(died.below("spawn_main")[0].pid, signal.SIGKILL)
    assert died.wait() == 4 and "Traceback" not in died.said, died.said
    assert "1 of 2 processes ended early (exit codes [-9])" in died.said
    labels = list(read_labels(out / "labels"))
    assert len(read_rows(out / "labels", "labels")) == len(labels)

    last = Started(home / "last", command, words)
    assert last.wait() == 0, last.said
    found = list(read_labels(out / "labels"))
    assert all(label in found for label in labels)
    assert max(Counter((one.task, one.number, one.outcome) for one in found).values()) == 1
    assert {one.task for one in found} == {row["key"] for row in read_rows(shards)}
    assert json.loads(last.said[last.said.index("{") :])["rows"] == len(found)
