"""A whole run on the CPU: sampled tasks, the teacher's answers, and files that are continued."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import islice

import pytest

from kernel_assistant_training.episodes.lines import Episode, Failure, read_lines
from kernel_assistant_training.episodes.run import run
from kernel_assistant_training.episodes.subject import MOST_BYTES, subjects
from kernel_assistant_training.lessons.lesson import FINISH
from kernel_assistant_training.options.data import EpisodesArguments
from kernel_assistant_training.synth.memory import traffic
from tests.common.caches import known_cpu


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """The bandwidths are given, because they cannot be measured on a busy machine."""
    folder = tmp_path_factory.mktemp("episodes")
    known_cpu(folder / "cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNEL_ASSISTANT_HOME", str(folder))
        much = {"seconds": 3600.0, "lessons": 4, "tasks": 2}
        yield EpisodesArguments(target="cpu", out=folder / "out", seed=3, faults=0.5, **much)


def lines(options):
    episodes = list(read_lines(options.out / "episodes-cpu-00.jsonl", Episode))
    failures = list(read_lines(options.out / "failures-cpu-00.jsonl", Failure))
    return episodes, failures


@pytest.mark.lost
@pytest.mark.slow
def test_a_run_and_its_continuation(options):
    summary = run(options)
    episodes, failures = lines(options)
    numbers = {one.number for one in (*episodes, *failures)}
    assert len(numbers) == 2
    assert summary["episodes"] == len(episodes) > 2, "several lines have the same task"
    # What is shared is done once: only the first line of a task has seconds of opening it.
    for number in {episode.number for episode in episodes}:
        own = [episode for episode in episodes if episode.number == number]
        assert ["open" in episode.seconds for episode in own] == [True] + [False] * (len(own) - 1)
    for episode in episodes:
        roles = [message["role"] for message in episode.messages]
        assert roles[:3] == ["system", "user", "assistant"] and roles[-1] == "assistant"
        assert episode.messages[-1]["content"] == FINISH
        assert all(("loss" in message) == (message["role"] == "assistant") for message in episode.messages)
        assert sum(message.get("loss", False) for message in episode.messages) >= 2
        assert ("fault" in episode.turns) == (not episode.messages[2]["loss"] and episode.turns[0] == "fault")
        timed = [one["content"] for one in episode.messages if one["content"].startswith("ok ")]
        assert timed and all((" compile " in one) == (episode.compile == "estimated") for one in timed)
        assert episode.split == "train" and episode.best_ms > 0
    # What was cut off is dropped; a second run goes on behind the first.
    path = options.out / "episodes-cpu-00.jsonl"
    with path.open("ab") as file:
        file.write(b'{"number": 99, "messa')
    run(replace(options, tasks=1))
    every, all_failures = lines(options)
    assert every[: len(episodes)] == episodes
    said = {(one.key, *(part["content"] for part in one.messages if part["role"] == "assistant")) for one in every}
    assert len(said) == len(every)
    new = {one.number for one in (*every[len(episodes) :], *all_failures[len(failures) :])}
    assert len(new) == 1 and min(new) > max(numbers)


@pytest.mark.lost
@pytest.mark.slow
def test_a_process_that_dies_is_followed_by_another(options, tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_assistant_training.episodes.run.LIVED", 0.0)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nmkdir "{tmp_path}/tried" 2>/dev/null && exit 3\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    summary = run(replace(options, out=tmp_path / "out", python=str(python), processes=2, tasks=1, lessons=1))
    assert summary["failed_processes"] == [1]
    names = sorted(path.name for path in (tmp_path / "out").glob("episodes-*"))
    assert names == ["episodes-cpu-00.jsonl", "episodes-cpu-01.jsonl"]
    assert summary["episodes"] + sum(summary["failures"].values()) == 2


def test_parts_share_no_task_and_keep_the_window():
    found = [subject for part in (0, 1) for subject in islice(subjects(1, "cpu", part=part, parts=2), 20)]
    keys = [{subject.key for subject in half} for half in (found[:20], found[20:])]
    assert not keys[0] & keys[1]
    assert all(1 << 20 <= traffic(subject.graph) <= MOST_BYTES["cpu"] for subject in found)
    again = next(subjects(1, "cpu", first=found[0].number, parts=2))
    assert (again.key, again.answers) == (found[0].key, found[0].answers)
